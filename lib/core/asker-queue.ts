import type { Asker } from './asker.js';

/** Askers in the order in which they came; any of them may leave. Most keys have just one, who costs no more than a field. */
export class AskerQueue {
  #first: Asker | undefined;
  #others: Set<Asker> | undefined;
  /** Goes on through the others, also those who come later: a new one would pass all the places that were left. */
  #order: Iterator<Asker, undefined> | undefined;

  get first(): Asker | undefined {
    return this.#first;
  }

  get size(): number {
    return (this.#first ? 1 : 0) + (this.#others?.size ?? 0);
  }

  add(asker: Asker): void {
    if (this.#first) (this.#others ??= new Set()).add(asker);
    else this.#first = asker;
  }

  remove(asker: Asker): void {
    if (this.#first === asker) this.#first = this.#others && this.#takeNext(this.#others);
    else this.#others?.delete(asker);
  }

  *[Symbol.iterator](): Iterator<Asker> {
    if (this.#first) yield this.#first;
    if (this.#others) yield* this.#others;
  }

  #takeNext(others: Set<Asker>): Asker | undefined {
    let next = (this.#order ??= others.values()).next();
    // It ended when there was nobody left; others may have come since.
    if (next.done) next = (this.#order = others.values()).next();
    if (next.value) others.delete(next.value);
    return next.value;
  }
}
