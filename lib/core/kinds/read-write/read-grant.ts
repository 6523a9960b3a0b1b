import type { Clock } from '../../clock.js';
import type { HeldLock } from '../../leases/held-lock.js';
import type { LockHandle } from '../../leases/lock-handle.js';
import { ReentrantLock } from '../../leases/lock-views.js';
import type { ReleaseListener } from '../../leases/releaser.js';

/**
 * How long readers join the grant of their process before the store is asked again whether a writer waits. So a writer of
 * another process waits only for readers that acquired the key up to this long after its turn came.
 */
const JOIN_WITHIN_MS = 100;

/** The grant under which the readers of one process read. The last reader releases it. */
export class ReadGrant {
  readonly handle: LockHandle;
  readonly #clock: Clock;
  readonly #onEmpty: () => void;
  #readers = 0;
  #joinUntilMs = 0;

  constructor(
    handle: LockHandle,
    { clock, onEmpty }: { readonly clock: Clock; readonly onEmpty: () => void },
  ) {
    this.handle = handle;
    this.#clock = clock;
    this.#onEmpty = onEmpty;
  }

  get hasReaders(): boolean {
    return this.#readers > 0;
  }

  /** Whether readers may join it, if no writer waits. */
  get isUsable(): boolean {
    return this.hasReaders && this.handle.isValid();
  }

  /** Whether it is so short ago that no writer waited that it need not be checked again. */
  get isFresh(): boolean {
    return this.isUsable && this.#clock.monotonicMs() < this.#joinUntilMs;
  }

  /** No writer waited at this time of the monotonic clock. */
  refresh(atMs: number): void {
    this.#joinUntilMs = atMs + JOIN_WITHIN_MS;
  }

  join(): ReadShare {
    this.#readers += 1;
    return new ReadShare(this);
  }

  /** One reader ends. */
  leave({ onSent, onResult }: ReleaseListener): void {
    this.#readers -= 1;
    const { handle } = this;
    if (this.#readers === 0) {
      this.#onEmpty();
      if (handle.isHeld) handle.startRelease({ onSent, onResult });
      else handle.releaseLost(onSent);
      return;
    }
    onSent?.();
    if (!onResult) return;
    if (handle.isValid()) onResult({ kind: 'released' });
    else
      void handle.isConfirmed().then((isHeld) => onResult(isHeld ? { kind: 'released' } : { kind: 'gone' }));
  }
}

/** The part that one reader has in the grant of its process. */
export class ReadShare extends ReentrantLock {
  readonly #grant: ReadGrant;
  #hasLeft = false;

  constructor(grant: ReadGrant) {
    super(grant.handle);
    this.#grant = grant;
  }

  override uses(held: HeldLock): boolean {
    return this.viewedLock.uses(held);
  }

  override startRelease(listener: ReleaseListener): void {
    const isFirst = !this.#hasLeft;
    this.#hasLeft = true;
    void this.release();
    if (isFirst) this.#grant.leave(listener);
    else super.startRelease(listener);
  }

  override releaseLost(onSent?: () => void): void {
    this.startRelease({ onSent });
  }
}
