import type { Store } from '../../../support/stores.js';

/** What a worker is told when it starts. */
export interface Task {
  readonly name: string;
  readonly store: Store;
  readonly namespace: string;
  readonly seed: number;
  readonly logFile: string;
  readonly resourcePort: number;
  /** How many wish for locks at the same time. */
  readonly callers: number;
  readonly keys: number;
}

/** What a worker is told while it runs. */
export type WorkerCommand =
  | { readonly order: 'begin'; readonly task: Task }
  /** The event loop is blocked for so long. */
  | { readonly order: 'block'; readonly forMs: number }
  /** The wall clock of the process differs from that of the machine by so much. */
  | { readonly order: 'shift-date'; readonly byMs: number }
  /** Ends what it has begun, closes the application, and exits by itself. */
  | { readonly order: 'end' };

/** What a worker tells. */
export type WorkerStatus =
  /** It has begun to wish for locks. */
  | { readonly news: 'working' }
  /** The application is closed; what still keeps the process alive besides this channel. */
  | { readonly news: 'closed'; readonly left: readonly string[] };

/** Leases of keys that many want. */
export const leasesOf = (store: Store) => ('etcd' in store ? ETCD_LEASES_MS : LEASES_MS);
export const LEASES_MS = [1_000, 1_500, 2_000] as const;
/** etcd has no shorter ones. */
const ETCD_LEASES_MS = [2_000, 2_500, 3_000] as const;
/**
 * The lease of keys that one caller has for himself: only a release that is never sent keeps them so long. Longer than most
 * episodes, as it shows at their end.
 */
export const OWN_LEASE_MS = 300_000;
/** On a quorum no lease is longer: new processes do not count servers that have restarted until such a lease is over. */
export const QUORUM_LEASE_MS = 6_000;
/** Of ZooKeeper. A lock whose process has died stays so long, and no lease is longer than three quarters of it. */
export const CHAOS_SESSION_MS = 4_000;
export function ownLeaseMs(store: Store): number {
  if ('zookeeper' in store) return (CHAOS_SESSION_MS * 3) / 4;
  return 'quorum' in store ? QUORUM_LEASE_MS : OWN_LEASE_MS;
}
