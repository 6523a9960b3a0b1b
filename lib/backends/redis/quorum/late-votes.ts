import { addTo } from './bounded.js';

/** So many locks are remembered: a late vote for another one lapses by itself. */
const MOST = 10_000;

/**
 * Servers that may yet vote for a lock that is held already: they were slow, or the connection was lost, or they had
 * forgotten the script and are sent the text of it. If the lock is given back before that, they have to be told again.
 */
export class LateVotes {
  readonly #byHolder = new Map<string, number>();

  /** `servers` in bits. */
  expect(holder: string, servers: number): void {
    addTo(this.#byHolder, { key: holder, value: servers, most: MOST });
  }

  /** One of them has answered. */
  settle(holder: string, server: number): void {
    const servers = this.#byHolder.get(holder);
    if (servers === undefined) return;
    if (servers === server) this.#byHolder.delete(holder);
    else this.#byHolder.set(holder, servers & ~server);
  }

  /** The lock ends: the servers, in bits. */
  take(holder: string): number {
    const servers = this.#byHolder.get(holder) ?? 0;
    if (servers !== 0) this.#byHolder.delete(holder);
    return servers;
  }
}
