import { setMaxListeners } from 'node:events';

/** Ends waits when it aborts. An `AbortSignal` is one, too. */
export interface WaitSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/**
 * Ends the waits for the parts of one lock. An `AbortController` would do, but with its signal, its event and a listener for
 * each part it costs more than the parts themselves.
 */
export class WaitController implements WaitSignal {
  #listeners: (() => void)[] = [];
  #aborted = false;
  #reason: unknown;

  get aborted(): boolean {
    return this.#aborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  /** Only the first call counts. */
  abort(reason: unknown): void {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason;
    for (const listener of this.#listeners.splice(0)) listener();
  }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  /** Aborts together with this signal, and with its reason. Returns a function that ends this. */
  follow(signal: WaitSignal): () => void {
    const onAbort = () => this.abort(signal.reason);
    allowManyListeners(signal);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    return () => signal.removeEventListener('abort', onAbort);
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const index = this.#listeners.indexOf(listener);
    if (index !== -1) this.#listeners.splice(index, 1);
  }
}

/** Any number of callers may share one signal. */
export function allowManyListeners(signal: WaitSignal): void {
  if (signal instanceof WaitController) return;
  try {
    setMaxListeners(0, signal as AbortSignal);
  } catch {
    // A signal of another runtime, such as jsdom, does not count its listeners.
  }
}
