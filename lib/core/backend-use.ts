import type { LockBackend } from './backend.js';
import { shareAcrossCopies } from './package-copies.js';

const usesOf = shareAcrossCopies('uses of backends', () => new WeakMap<LockBackend, Set<object>>());

/** The use of a backend by one module. Several modules may share a backend object, and the last one to end closes it. */
export class BackendUse {
  readonly #backend: LockBackend;
  readonly #uses: Set<object>;

  constructor(backend: LockBackend) {
    this.#backend = backend;
    this.#uses = usesOf.get(backend) ?? new Set<object>();
    usesOf.set(backend, this.#uses);
  }

  /** To be called with each request, but not with checks: a module whose boot has failed is never closed. */
  begin(): void {
    this.#uses.add(this);
  }

  async end(): Promise<void> {
    this.#uses.delete(this);
    if (this.#uses.size === 0) await this.#backend.close();
  }
}
