import { addTo } from './bounded.js';

/** Somebody waits for the word of these servers. */
export interface Expected {
  readonly holder: string;
  /** In bits. */
  servers: number;
  /** The lock has been given back meanwhile. */
  isOver: boolean;
}

/** So many locks are remembered: a late vote for another one lapses by itself. */
const MOST = 10_000;

/**
 * Servers that may yet vote for a lock that is held already, or hold it as well: they were slow, or the connection was
 * lost, or they had forgotten the script and are sent the text of it. If the lock is given back before that, they have to
 * be told again.
 */
export class LateVotes {
  readonly #byHolder = new Map<string, readonly Expected[]>();

  /** `servers` in bits. */
  expect(holder: string, servers: number): Expected {
    const expected = { holder, servers, isOver: false };
    const value = [...this.#of(holder), expected];
    addTo(this.#byHolder, { key: holder, value, most: MOST });
    return expected;
  }

  /** These have answered, or are not asked after all. */
  settle(expected: Expected, servers: number): void {
    expected.servers &= ~servers;
    if (expected.servers !== 0 || expected.isOver) return;
    const left = this.#of(expected.holder).filter((one) => one !== expected);
    if (left.length > 0) this.#byHolder.set(expected.holder, left);
    else this.#byHolder.delete(expected.holder);
  }

  /** The lock ends: the servers that have not answered yet, in bits. */
  take(holder: string): number {
    let servers = 0;
    for (const expected of this.#of(holder)) {
      expected.isOver = true;
      servers |= expected.servers;
    }
    this.#byHolder.delete(holder);
    return servers;
  }

  #of(holder: string): readonly Expected[] {
    return this.#byHolder.get(holder) ?? [];
  }
}
