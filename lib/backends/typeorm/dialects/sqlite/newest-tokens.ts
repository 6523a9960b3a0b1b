/**
 * The tokens that this process granted in the current ms of SQLite's clock, which has no smaller unit. Without them, a row
 * that is deleted and inserted again within one ms would get the fencing token that it had before.
 */
export class NewestTokens {
  #nowUs = 0;
  readonly #next = new Map<string, number>();

  /** The first token of a key that has no row. */
  firstTokenFor(key: string, nowUs: number): number {
    if (nowUs !== this.#nowUs) this.#next.clear();
    this.#nowUs = nowUs;
    return Math.max(nowUs, this.#next.get(key) ?? 0);
  }

  /** `next`: the first token that no grant of the key has. */
  record(key: string, next: number): void {
    this.#next.set(key, next);
  }
}
