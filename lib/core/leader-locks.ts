import { leaderStoreKey } from './store-key.js';
import type { LockHandle } from './leases/lock-handle.js';
import { findLockInContext } from './lock-context.js';
import type { LockInfo, LockAdmin } from './lock-admin.js';
import type { WaitQueues } from './waiting/wait-queues.js';

interface LeaderLocksParts {
  readonly namespace: string;
  readonly lockAdmin: LockAdmin;
  readonly waitQueues: WaitQueues;
  readonly stopController: AbortController;
  /** Stands for the locks of this process in lock contexts. */
  readonly locks: object;
}

/** The locks of elections. The holder of one is the leader. */
export class LeaderLocks {
  readonly #parts: LeaderLocksParts;

  constructor(parts: LeaderLocksParts) {
    this.#parts = parts;
  }

  /** Waits for the leadership without a timeout. Rejects with the reason of the signal when it aborts. */
  async wait(
    election: string,
    { leaseMs, signal }: { readonly leaseMs: number; readonly signal: AbortSignal },
  ): Promise<LockHandle> {
    const { waitQueues, stopController } = this.#parts;
    stopController.signal.throwIfAborted();
    signal.throwIfAborted();
    const storeKey = this.#storeKey(election);
    const params = { key: election, storeKey, signal, leaseMs, waitMs: Infinity, renew: true };
    return waitQueues.acquire({ ...params, purpose: 'term' });
  }

  /** Returns the current leader. */
  inspect(election: string): Promise<LockInfo | null> {
    return this.#parts.lockAdmin.inspectLock(election, this.#storeKey(election));
  }

  /** Whether this asynchronous context is part of the leader's work. */
  isLeading(election: string): boolean {
    return findLockInContext(this.#parts.locks, this.#storeKey(election)) !== undefined;
  }

  #storeKey(election: string): string {
    return leaderStoreKey(this.#parts.namespace, election);
  }
}
