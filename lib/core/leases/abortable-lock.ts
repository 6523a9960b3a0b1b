import { PrintableLock } from '../json.js';

/** What depends on a lock and stops when that ends. */
export type Abortable = Pick<AbortController, 'abort'>;

/** The signal of a lock, and what stops together with it. */
export abstract class AbortableLock extends PrintableLock {
  #controller: AbortController | undefined;
  #reason: Error | undefined;
  /** The nested locks that are not released yet. */
  #views: Abortable[] | undefined;

  /** Aborts the signal, if the lease has ended and nothing has noticed it yet. */
  abstract detectLoss(): void;

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#reason) this.#controller.abort(this.#reason);
    }
    this.detectLoss();
    return this.#controller.signal;
  }

  /** Aborts the signal of the work. The lock stays held. */
  abort(reason: Error): void {
    this.#reason ??= reason;
    this.#controller?.abort(reason);
    this.abortViews(() => reason);
  }

  /** Aborts the view together with the signal, and when the lock is released before the view. */
  addView(view: Abortable): void {
    (this.#views ??= []).push(view);
  }

  removeView(view: Abortable): void {
    this.#views = this.#views?.filter((each) => each !== view);
  }

  /** The reason is created only if there is a view, because the stack of an error is slow. */
  protected abortViews(createReason: () => Error): void {
    if (!this.#views?.length) return;
    const reason = createReason();
    for (const view of this.#views) view.abort(reason);
  }
}
