/** A source of chance that repeats itself for the same seed (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 up to 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  /** A whole number, both ends included. */
  whole(least: number, most: number): number {
    return Math.floor(this.between(least, most + 1));
  }

  pick<T>(some: readonly [T, ...T[]] | readonly T[]): T {
    const picked = some[this.whole(0, some.length - 1)];
    if (picked === undefined) throw new Error('Expected something to pick from.');
    return picked;
  }

  isLucky(probability: number): boolean {
    return this.next() < probability;
  }

  /** For somebody else, so that how often he asks changes nothing here. */
  seed(): number {
    return this.whole(0, 2 ** 32 - 1);
  }
}
