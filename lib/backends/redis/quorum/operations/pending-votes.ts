import { setBounded } from '../bounded-map.js';

/** Somebody waits for the word of these servers. */
export interface PendingVote {
  readonly holder: string;
  /** In bits. */
  serverBits: number;
  /** The lock has been given back meanwhile. */
  isReleased: boolean;
}

/** So many locks are remembered: a late vote for another one lapses by itself. */
const MAX_PENDING_VOTES = 10_000;

/**
 * Servers that may yet vote for a lock that is held already, or hold it as well: they were slow, or the connection was
 * lost, or they had forgotten the script and are sent the text of it. If the lock is given back before that, they have to
 * be told again.
 */
export class PendingVotes {
  readonly #byHolder = new Map<string, readonly PendingVote[]>();

  /** `servers` in bits. */
  add(holder: string, serverBits: number): PendingVote {
    const pendingVote = { holder, serverBits, isReleased: false };
    const value = [...this.#of(holder), pendingVote];
    setBounded(this.#byHolder, { key: holder, value, maxSize: MAX_PENDING_VOTES });
    return pendingVote;
  }

  /** These have answered, or are not asked after all. */
  settle(pendingVote: PendingVote, serverBits: number): void {
    pendingVote.serverBits &= ~serverBits;
    if (pendingVote.serverBits !== 0 || pendingVote.isReleased) return;
    const left = this.#of(pendingVote.holder).filter((one) => one !== pendingVote);
    if (left.length > 0) this.#byHolder.set(pendingVote.holder, left);
    else this.#byHolder.delete(pendingVote.holder);
  }

  /** The lock ends: the servers that have not answered yet, in bits. */
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
