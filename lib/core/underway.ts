/** Counts what is under way, for who waits until it has ended. */
export class Underway {
  #count = 0;
  #waiting: (() => void)[] = [];

  begin(): void {
    this.#count += 1;
  }

  end(): void {
    this.#count -= 1;
    if (this.#count > 0) return;
    for (const tell of this.#waiting.splice(0)) tell();
  }

  /** Settles when nothing is under way. */
  ended(): Promise<void> {
    return this.#count === 0 ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }
}
