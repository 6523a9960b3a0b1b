import { addTo } from './bounded.js';

/** So many locks are remembered: a late vote for another one lapses by itself. */
const MOST = 10_000;

/**
 * Servers that may yet vote for a lock that is held already, or hold it as well: they were slow, or the connection was
 * lost, or they had forgotten the script and are sent the text of it. If the lock is given back before that, they have to
 * be told again.
 */
export class LateVotes {
  readonly #byHolder = new Map<string, number>();

  /** `servers` in bits. */
  expect(holder: string, servers: number): void {
    const value = servers | this.of(holder);
    addTo(this.#byHolder, { key: holder, value, most: MOST });
  }

  /** In bits, too. */
  of(holder: string): number {
    return this.#byHolder.get(holder) ?? 0;
  }

  /** These have answered. */
  settle(holder: string, servers: number): void {
    const left = this.of(holder) & ~servers;
    if (left === 0) this.#byHolder.delete(holder);
    else this.#byHolder.set(holder, left);
  }

  /** The lock ends: the servers, in bits. */
  take(holder: string): number {
    const servers = this.of(holder);
    if (servers !== 0) this.#byHolder.delete(holder);
    return servers;
  }
}
