import { setBounded } from '../set-bounded.js';

/** Servers that may still write a vote for one lock. */
export interface PendingVote {
  readonly holder: string;
  /** The servers, in bits. */
  serverBits: number;
  /** The lock has been released since. */
  isReleased: boolean;
}

/** How many locks are tracked. A late vote for a further lock ends with its lease. */
const MAX_PENDING_VOTES = 10_000;

/**
 * Servers that may still vote for a lock that a majority has already granted, or may still get a copy of it. They were slow,
 * their connection was lost, or they did not know the script and need its text. If the lock is released before they reply,
 * they must be sent a second release.
 */
export class PendingVotes {
  readonly #byHolder = new Map<string, readonly PendingVote[]>();

  /** Registers servers, in bits. */
  add(holder: string, serverBits: number): PendingVote {
    const pendingVote = { holder, serverBits, isReleased: false };
    const value = [...this.#of(holder), pendingVote];
    setBounded(this.#byHolder, { key: holder, value, maxSize: MAX_PENDING_VOTES });
    return pendingVote;
  }

  /** These servers have replied, or were not sent the vote after all. */
  settle(pendingVote: PendingVote, serverBits: number): void {
    pendingVote.serverBits &= ~serverBits;
    if (pendingVote.serverBits !== 0 || pendingVote.isReleased) return;
    const left = this.#of(pendingVote.holder).filter((one) => one !== pendingVote);
    if (left.length > 0) this.#byHolder.set(pendingVote.holder, left);
    else this.#byHolder.delete(pendingVote.holder);
  }

  /** The lock is released: returns the servers that have not replied yet, in bits, and forgets them. */
  take(holder: string): number {
    let serverBits = 0;
    for (const pendingVote of this.#of(holder)) {
      pendingVote.isReleased = true;
      serverBits |= pendingVote.serverBits;
    }
    this.#byHolder.delete(holder);
    return serverBits;
  }

  #of(holder: string): readonly PendingVote[] {
    return this.#byHolder.get(holder) ?? [];
  }
}
