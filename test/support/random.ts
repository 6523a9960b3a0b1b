/**
 * A source of chance that repeats itself for the same seed.
 *
 * @see mulberry32, by Tommy Ettinger
 */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** At least 0, less than 1. */
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
    return least + Math.floor(this.next() * (most - least + 1));
  }

  pick<Value>(some: readonly [Value, ...Value[]] | readonly Value[]): Value {
    if (some.length === 0) throw new Error('Expected something to pick from.');
    return some[Math.floor(this.next() * some.length)]!;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** For somebody else, so that how often he asks changes nothing here. */
  seed(): number {
    return this.whole(0, 2 ** 32 - 1);
  }
}

/** A seed far from that of the next number, for one seed after the other. */
export const spreadSeed = (number: number): number => Math.imul(number ^ 0x9e3779b9, 0x85ebca6b) >>> 0;
