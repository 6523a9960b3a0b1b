/** Counts what is under way, for who waits until it has ended. */
export class InFlight {
  #count = 0;
  #onIdle: (() => void)[] = [];

  begin(): void {
    this.#count += 1;
  }

  end(): void {
    this.#count -= 1;
    if (this.#count > 0) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** Settles when nothing is under way. */
  whenIdle(): Promise<void> {
    return this.#count === 0 ? Promise.resolve() : new Promise((resolve) => this.#onIdle.push(resolve));
  }
}
