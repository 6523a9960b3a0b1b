import type { Store } from '../../../support/stores.js';
import type { StoredEntry } from '../checkers/orphans.js';
import type { RestartableServer } from '../../injection/restartable-server.js';
import type { StoreClock } from '../../injection/store-clock.js';

/** A store with everything that can befall it. What a kind of store does not have is left out. */
export interface StoreUnderTest {
  readonly name: string;
  /** Started by us. Each worker reaches each of them through a network of its own. */
  readonly servers: readonly RestartableServer[];
  /** How the store is found, if its servers are at these ports. */
  storeAt(ports: readonly number[]): Store;
  /** How long it keeps the locks of a process that has ended, if that is longer than their leases. */
  readonly sessionMs?: number;
  /** The longest time for which a server may stand still within the guarantee, if there is a limit. */
  readonly longestFreezeMs?: number;
  /** How long it keeps a lock with this lease after the death of its holder, at most, if that is longer than the lease. */
  keptMs?(leaseMs: number): number;
  /** The wall clock of the servers. */
  readonly clock?: StoreClock | undefined;
  /** What it still keeps under this namespace for anybody. */
  storedEntries(namespace: string): Promise<readonly StoredEntry[]>;
  /** Forgets all locks, and their fencing tokens. */
  deleteAll(): Promise<unknown>;
  /** Makes a server that was killed forget what it has on its disk. */
  loseData?(): Promise<unknown>;
  /** Ends the sessions of all clients. */
  killSessions?(): Promise<unknown>;
  /** Ends the sessions by which clients are called. */
  killNotificationSessions?(): Promise<unknown>;
  /** Keeps everybody waiting in the store for so long, without a word. */
  stall?(forMs: number): Promise<unknown>;
  /** For so long, ends all sessions and has no room for new ones, or not for all. */
  exhaustConnections?(forMs: number): Promise<unknown>;
  flushScripts?(): Promise<unknown>;
  /** Makes it serve again if it stands still by a fault of its own, which does not pass. Returns whether that was so. */
  endStandstill?(): Promise<boolean>;
  close(): Promise<void>;
}

export interface StoreOptions {
  /** Takes a compiler, for the clock. */
  readonly withClock: boolean;
}
