import type { Clock } from './clock.js';

/**
 * Where locks are kept. A backend answers questions about single moments; waiting, renewing, deadlines, retries and
 * signals are the core's business.
 *
 * What every backend promises, and `backendLaws` of the testing door checks:
 *
 * - At any moment of the store's own clock a key has at most one holder. Only the store's clock decides expiry.
 * - The fencing token of a grant is `max(newest token taken up + 1, store time in µs)`: it grows even if the store forgot
 *   the newest one, as long as its clock did not run backwards at the same time.
 * - An acquisition sent again by the same holder is the same grant: same fencing token, a fresh lease,
 *   never a shorter one.
 * - A renewal or release of anybody but the present holder changes nothing. A renewal never creates and never
 *   shortens a lease.
 * - A release of a holder that was never granted is answered `gone`, so it is safe to send after any doubt.
 */
export interface LockBackend {
  /** What it is called in messages: `redis`, `postgres`, `memory`. */
  readonly name: string;
  /** The clock of a backend that lives in simulated time. Its locks then use the same one. */
  readonly clock?: Clock;
  /**
   * So many requests that somebody waits for are worth a call of their own, before the turn of the event loop has ended:
   * the store works on them while the next ones are put together. Without it, all of one turn go together.
   */
  readonly preferredBatchSize?: number;
  /** The longest lease it can keep, where there is one. Nobody asks it for a longer one: that is a fault of the configuration. */
  readonly maxLeaseMs?: number;
  /** The TypeORM data source that it was given, by which `withLockedTransaction` finds the locks. */
  readonly dataSource?: object | undefined;
  /**
   * Carries any number of requests, in as few round trips as the store allows. Each list of answers stands in the
   * order of its requests. No key stands twice in one call.
   *
   * What could not be found out is answered {@link UnknownResult} for each request it concerns; a rejection means that
   * for all of them. `limitMs` is how long the answers are of use: a request that reaches the store later should
   * be refused there, and a connection silent for so long should be given up.
   */
  execute(requests: RequestBatch, timeoutMs: number): Promise<BatchResult>;
  /** Who holds the key now; `null` if nobody does. `limitMs` as in {@link execute}. */
  inspect(key: string, timeoutMs: number): Promise<LockRecord | null>;
  /**
   * Frees the key if this is one of the fencing tokens that its present grant takes up. Those between two blocks of one
   * grant were given to nobody, and a store need not know them.
   */
  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean>;
  /**
   * Adds a line to the notes of the key, which are for people and decide nothing. It has at most {@link MAX_HISTORY_ENTRY_LENGTH}
   * characters and no line break. The newest {@link MAX_HISTORY_ENTRIES} are kept, apart from the lock of the key.
   */
  appendHistory(key: string, entry: string, timeoutMs: number): Promise<void>;
  /** The notes of the key, the newest first. */
  readHistory(key: string, timeoutMs: number): Promise<readonly string[]>;
  /**
   * Looks at the store once, when the application boots. Rejects with `LockConfigError` for what no retry can mend
   * (a missing table, an unsupported dialect) and with anything else when the store does not answer.
   */
  check?(timeoutMs: number): Promise<void>;
  /**
   * What works, but should be set up in another way: a sentence for the log, or `undefined`. Called once, when the
   * application boots and {@link check} has passed.
   */
  advice?(timeoutMs: number): Promise<string | undefined>;
  /** Calls whoever waits, as an invitation to ask again. Optional, never relied on: waiters look by themselves too. */
  onReleased?(listener: (notice: ReleaseNotice) => void): () => void;
  /** Tells of servers that go and come back, where a lock takes the word of several. */
  onServerStatus?(listener: (status: ServerStatus) => void): () => void;
  /** Closes what the backend itself opened. A request after that opens it again. */
  close(): Promise<void>;
}

/** Two for each run of a job: how it began, and how it ended. */
export const MAX_HISTORY_ENTRIES = 100;
export const MAX_HISTORY_ENTRY_LENGTH = 400;

export interface RequestBatch {
  readonly acquire?: readonly AcquireRequest[];
  readonly renew?: readonly RenewRequest[];
  readonly release?: readonly ReleaseRequest[];
}

export interface BatchResult {
  readonly acquire: readonly AcquireResult[];
  readonly renew: readonly RenewResult[];
  readonly release: readonly ReleaseResult[];
}

/** Who asks for what. */
export interface Claim {
  /** The key as the store knows it, with its namespace in front. */
  readonly key: string;
  /** The random identity of one acquisition. */
  readonly holder: string;
}

export interface AcquireRequest extends Claim {
  readonly leaseMs: number;
  /** Shown by `inspect()`. */
  readonly instance: string;
  /**
   * How many fencing tokens the grant takes up, its own one being the first: the next grant's is larger than all of
   * them. So many callers of one process may hold the key in turn without the store.
   *
   * @default 1
   */
  readonly tokenCount?: number;
  /**
   * The asker waits, and asks again within so many ms. A store with a line keeps a place in it for so long; a store
   * that can call (see {@link LockBackend.onReleased}) calls for so long. Without it the asker does not wait.
   */
  readonly retryWithinMs?: number | undefined;
  /** Grant only if this tick may be claimed, and move the key's watermark to it in the same step. */
  readonly tick?: TickClaim;
}

/**
 * A planned instant of a schedule. The store keeps the newest claimed one with the key, also when it is free, and with it
 * how often it was given out and whether a run of it has ended.
 */
export interface TickClaim {
  /** UTC milliseconds. */
  readonly tickMs: number;
  /** How long before the tick, by the store's clock, it may be claimed. */
  readonly maxEarlyMs: number;
  /**
   * How long after the tick, by the store's clock, it may be claimed. A run that died may be taken over for so long
   * after the end of its lease.
   */
  readonly staleAfterMs: number;
  /**
   * How often the tick may be given out, if none of its runs ended. With more than one, a newer tick is refused as
   * `unfinished` as long as an older one may be taken over.
   *
   * @default 1
   */
  readonly maxAttempts?: number;
  /**
   * Claims nothing: if the key knows no tick yet, the store's time is noted as the newest claimed one, so that what was
   * planned before counts as claimed.
   */
  readonly isRegistration?: true;
  /** The key is for this tick alone, so the store may forget it. */
  readonly cleanUp?: KeyCleanUp;
}

/** An acquisition that claims a tick. */
export type TickRequest = AcquireRequest & { readonly tick: TickClaim };

/** Which keys a store need not remember once a tick was granted. */
export interface KeyCleanUp {
  /** How long this one must be remembered. */
  readonly afterMs: number;
  /** Keys of the same job from this one on, byte for byte, */
  readonly fromKey: string;
  /** and before this one, as far as they are free. */
  readonly beforeKey: string;
}

export interface RenewRequest extends Claim {
  readonly leaseMs: number;
  /**
   * How many more fencing tokens the grant would take up. Only where nobody else waits for the key; a store may always
   * leave it be.
   */
  readonly moreTokens?: number | undefined;
}

export interface ReleaseRequest extends Claim {
  /**
   * The run of the claimed tick has ended, so nobody takes it over. Noted in the step that frees the key; also after the
   * lease, if nobody has taken the key since.
   */
  readonly hasEnded?: true;
}

export type AcquireResult = Granted | Taken | TickRefused | UnknownResult;

export interface Granted {
  readonly kind: 'granted';
  readonly fencingToken: bigint;
  /** The how manyth run of its tick it is, where a tick was claimed. */
  readonly attempt?: number;
}

/** Somebody else has it. */
export interface Taken {
  readonly kind: 'taken';
  /** What is left of the other's lease, by the store's clock. */
  readonly remainingMs: number;
  /** The store keeps a place in line for the asker, until his holder is granted the key, is released, or is overdue. */
  readonly isQueued?: true;
  /** The asker will be called through {@link LockBackend.onReleased}, so it need not look often. */
  readonly willBeNotified?: true;
}

/** A key that may be free, or be so in a while. */
export interface ReleaseNotice {
  /** Without it calls may have been missed, of any key. */
  readonly key?: string;
  /** @default 0 */
  readonly inMs?: number;
}

/** One of several servers has been away for a while, or is back. */
export interface ServerStatus {
  /** For people: `host:port`. */
  readonly server: string;
  /** Why its word does not count. Missing: it does again. */
  readonly fault?: string;
  /** So many count now, */
  readonly voting: number;
  /** so many must, */
  readonly needed: number;
  /** of so many. */
  readonly servers: number;
}

export interface TickRefused {
  readonly kind: 'refused';
  /**
   * `claimed`: this tick or a later one was claimed before. `unfinished`: an earlier one must be taken over first.
   * `registered`: the key knew no tick until now.
   */
  readonly reason: 'claimed' | 'early' | 'stale' | 'unfinished' | 'registered';
  /** How far the tick lies ahead of the store's clock; negative once it has passed. */
  readonly aheadMs: number;
  /** The tick whose run died, if it is `unfinished`. */
  readonly unfinishedMs?: number;
  /** When the lease of the present run of this very tick ends, if that may then be taken over. */
  readonly retryInMs?: number;
}

export type RenewResult = Renewed | { readonly kind: 'lost' } | UnknownResult;

export interface Renewed {
  readonly kind: 'renewed';
  /** The first of the fencing tokens that the grant takes up from now on as well: larger than all it had. */
  readonly fencingToken?: bigint;
}

/** `gone`: the holder had nothing to release but, perhaps, a place in line. */
export type ReleaseResult = Released | { readonly kind: 'gone' } | UnknownResult;

export interface Released {
  readonly kind: 'released';
  /** Somebody else waits for the key, in a store without a line: let them come first. */
  readonly hasWaiters?: true;
}

/** The store did not say; the request may or may not have taken effect, or may do so later. */
export interface UnknownResult {
  readonly kind: 'unknown';
  readonly cause: unknown;
  /** `false` if the request surely never left: then there is nothing to withdraw. */
  readonly wasSent?: false;
  /** The connection was lost before it answered. Another one may answer, so an acquisition is asked for once more. */
  readonly isConnectionLost?: true;
}

export interface LockRecord {
  readonly holder: string;
  readonly instance: string;
  /** The first of those that the grant takes up. */
  readonly fencingToken: bigint;
  /** UTC milliseconds of the store's clock. */
  readonly sinceMs: number;
  readonly remainingMs: number;
}

export const unknownResult = (cause: unknown): UnknownResult => ({ kind: 'unknown', cause });

/** For a request whose connection was lost before it answered. */
export const connectionLostResult = (cause: unknown): UnknownResult => ({
  kind: 'unknown',
  cause,
  isConnectionLost: true,
});

/** For a request that surely never left. */
export const neverSentResult = (cause: unknown): UnknownResult => ({
  kind: 'unknown',
  cause,
  wasSent: false,
});
