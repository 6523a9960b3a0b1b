export type StoreName =
  'redis' | 'quorum' | 'postgres' | 'mariadb' | 'sqlite' | 'etcd' | 'zookeeper' | 'memory';

/** `tuned`: a peer looks again every 5 ms instead of as often as it likes. */
export type Profile = 'default' | 'tuned';

/** Where the stores are, in a form that goes to another process. */
export interface Stores {
  readonly redis: string;
  /** Independent servers. */
  readonly quorum: readonly string[];
  readonly postgres: string;
  readonly mariadb: string;
  readonly sqlite: { readonly driver: string; readonly file: string };
  /** `host:port` of one member. */
  readonly etcd: string;
  /** `host:port` of one server. */
  readonly zookeeper: string;
}

export interface Setting {
  readonly profile: Profile;
  readonly leaseMs: number;
  /** So long that everybody gets the lock in the end, if the contender lets him wait. */
  readonly waitMs: number;
  readonly stores: Stores;
}

export interface Held {
  release(): unknown;
  /** Where the contender knows: whether the lock is still its own. */
  isOurs?(): boolean;
  /** Where the store's keys alone do not tell: whether it still keeps the lock for its holder. */
  readonly isInStore?: () => Promise<boolean>;
}

/** Which kind of lock. */
export interface Kind {
  readonly permits?: number;
  readonly mode?: 'read' | 'write';
}

/** A contender at work in one process. */
export interface Session {
  acquire(key: string): Promise<Held>;
  /** Locks of other kinds, and of several keys, where the contender has them. */
  acquireKind?(key: string | readonly string[], kind: Kind): Promise<Held>;
  /** The contender's own way to run work under a lock, where the bench compares it. */
  withLock?(key: string): Promise<unknown>;
  /** Keeps the lock by the contender's own renewals until it is released. */
  hold?(key: string): Promise<Held>;
  /** Reads a page of 100 held locks, and returns the cursor of the next one. */
  listPage?(cursor: string | undefined): Promise<string | undefined>;
  close(): Promise<unknown>;
}

/** A way to lock that takes part in the bench. */
export interface Contender {
  readonly name: string;
  readonly store: StoreName;
  /** A floor is no product: the least work over the bare driver that locks at all. */
  readonly kind: 'ours' | 'peer' | 'floor';
  /** The Redis commands that it sends itself; all others in the server's statistics ran inside of its scripts. */
  readonly commands?: readonly string[];
  /** Whether its sessions can `hold`. */
  readonly renews?: boolean;
  /** Whether its sessions have permits. */
  readonly hasPermits?: boolean;
  /** @default all benches of its store */
  readonly only?: readonly string[];
  open(setting: Setting): Promise<Session>;
}

/** What a peer does between two tries in the tuned profile. */
export const TUNED_RETRY_MS = 5;

/** Stands for "as often as it takes" where a peer counts tries. */
export const MANY_TRIES = 1_000_000;

/** Only peers have settings to tune. */
export const profilesOf = ({ kind }: Contender): readonly Profile[] =>
  kind === 'peer' ? ['default', 'tuned'] : ['default'];
