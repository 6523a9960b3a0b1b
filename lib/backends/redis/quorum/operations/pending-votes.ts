import { setBounded } from '../set-bounded.js';

/** Servers that may still write a vote for one lock. */
export interface PendingVote {
  readonly holder: string;
  /** The servers, in bits. */
  serverBits: number;
  /** The lock has been released since. */
  isReleased: boolean;
}

/** What may still be written for one lock. */
interface PendingLock {
  readonly votes: Set<PendingVote>;
  /** Servers from which no reply will come, in bits. They may have voted. */
  failedBits: number;
}

/** How many locks are tracked. A late vote for a further lock ends with its lease. */
const MAX_PENDING_LOCKS = 10_000;

/**
 * Servers that may still vote for a lock that a majority has already granted, or may still get a copy of it. They were slow,
 * their connection was lost, or they did not know the script and need its text. If the lock is released before they reply,
 * they must be sent a second release.
 */
export class PendingVotes {
  readonly #byHolder = new Map<string, PendingLock>();

  /** Registers servers, in bits. */
  add(holder: string, serverBits: number): PendingVote {
    const pendingVote = { holder, serverBits, isReleased: false };
    const value = this.#byHolder.get(holder) ?? { votes: new Set(), failedBits: 0 };
    value.votes.add(pendingVote);
    setBounded(this.#byHolder, { key: holder, value, maxSize: MAX_PENDING_LOCKS });
    return pendingVote;
  }

  /** These servers have replied, or were not sent the vote after all. */
  settle(pendingVote: PendingVote, serverBits: number): void {
    pendingVote.serverBits &= ~serverBits;
    const lock = this.#byHolder.get(pendingVote.holder);
    if (!lock || pendingVote.serverBits !== 0) return;
    lock.votes.delete(pendingVote);
    if (lock.votes.size === 0 && lock.failedBits === 0) this.#byHolder.delete(pendingVote.holder);
  }

  /** No reply will come from these servers, which may have voted. A lock keeps one number for all such votes. */
  fail(pendingVote: PendingVote, serverBits: number): void {
    const lock = this.#byHolder.get(pendingVote.holder);
    if (lock?.votes.has(pendingVote)) lock.failedBits |= serverBits;
    this.settle(pendingVote, serverBits);
  }

  /** The lock is released: returns the servers that have not replied yet, in bits, and forgets them. */
  take(holder: string): number {
    const lock = this.#byHolder.get(holder);
    if (!lock) return 0;
    this.#byHolder.delete(holder);
    let serverBits = lock.failedBits;
    for (const pendingVote of lock.votes) {
      pendingVote.isReleased = true;
      serverBits |= pendingVote.serverBits;
    }
    return serverBits;
  }
}
