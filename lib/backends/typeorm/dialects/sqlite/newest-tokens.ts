/**
 * What this process granted in the present ms of SQLite's clock, which knows no smaller unit: a row removed meanwhile
 * would come back with the fencing token that it had.
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

  record(key: string, next: number): void {
    this.#next.set(key, next);
  }
}
