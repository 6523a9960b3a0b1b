import type { Errand } from './call.js';

/** Keys of which a statement may still be on its way, so that a later request for one of them has to wait. */
export class KeysUnderWay {
  readonly #errands = new Map<string, Set<Errand>>();

  has(key: string): boolean {
    return this.#errands.has(key);
  }

  add(errand: Errand): void {
    const { key } = errand.request;
    const errands = this.#errands.get(key);
    if (errands) errands.add(errand);
    else this.#errands.set(key, new Set([errand]));
  }

  /** Says whether this was the last one of its key. */
  remove(errand: Errand): boolean {
    const { key } = errand.request;
    const errands = this.#errands.get(key);
    if (!errands?.delete(errand) || errands.size > 0) return false;
    return this.#errands.delete(key);
  }
}
