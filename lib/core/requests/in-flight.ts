/** Counts operations in flight and waits until none is left. */
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

  /** Resolves when no operation is in flight. */
  whenIdle(): Promise<void> {
    return this.#count === 0 ? Promise.resolve() : new Promise((resolve) => this.#onIdle.push(resolve));
  }
}
