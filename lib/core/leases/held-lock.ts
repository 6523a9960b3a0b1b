import type { ReleaseResult, RenewResult } from '../backend-results.js';
import { unknownResult } from '../unknown-result.js';
import type { Clock } from '../clock.js';
import {
  applicationEndedError,
  grantLostError,
  lateReleaseError,
  leaseExpiredError,
} from '../error-factories.js';
import type { LockLostError } from '../errors.js';
import type { Events } from '../events.js';
import type { LinkedList, LinkedListNode } from '../linked-list.js';
import type { LeaseLimits } from '../options.js';
import type { TimerWheel, WheelTimer } from '../timer-wheel.js';
import type { Grant } from './grant.js';
import { type CurrentHandle, publishEnd, publishReleased } from './lease-end-events.js';
import type { LeaseVerifier } from './lease-verifier.js';
import type { ReleaseListener, Releaser } from './releaser.js';
import type { Renewer } from './renewer.js';

/** The waiters of this process for the key of a held lock. */
export interface HandoffQueue {
  /** Hands the lock over to the next waiter if that is allowed. Returns whether it did. */
  tryHandOff(held: HeldLock): boolean;
  /** The process no longer has the lock. It was released with this result, or lost if there is none. */
  onHeldLockEnded(held: HeldLock, result?: ReleaseResult): void;
}

/** What the held locks of a process share. */
export interface HeldLockParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly renewer: Renewer;
  readonly releaser: Releaser;
  readonly verifier: LeaseVerifier<HeldLock>;
  readonly list: LinkedList<HeldLock>;
  readonly leaseLimits: LeaseLimits;
  readonly onEnded: (held: HeldLock) => void;
}

export interface HeldLockOptions {
  readonly renew: boolean;
  readonly queue?: HandoffQueue | undefined;
}

/**
 * One lock that this process holds, from the grant of the store until it is released or lost. Callers use it in turn,
 * each through a handle of its own. No failure of a renewal ends it early: it is retried until the grant expires.
 */
export class HeldLock {
  readonly grant: Grant;
  readonly #parts: HeldLockParts;
  readonly #queue: HandoffQueue | undefined;
  /** How it ended: it was released, or lost for this reason. */
  #end: 'released' | LockLostError | undefined;
  #hasReleasedLost = false;
  #handle: CurrentHandle | undefined;
  #listNode: LinkedListNode<HeldLock> | undefined;
  #timer: WheelTimer | undefined;
  #isRenewed: boolean;
  /** `Infinity` while a renewal is in flight, or if the lock is not renewed. */
  #renewAtMs: number;
  /** Failed renewals since the last one that succeeded. */
  #failures = 0;

  constructor(grant: Grant, { renew, queue }: HeldLockOptions, parts: HeldLockParts) {
    this.grant = grant;
    this.#parts = parts;
    this.#queue = queue;
    this.#isRenewed = renew;
    this.#renewAtMs = renew ? parts.renewer.dueAtMs(grant) : Infinity;
  }

  get isHeld(): boolean {
    return this.#end === undefined;
  }

  /** Why it was lost, if it was. */
  get loss(): LockLostError | undefined {
    return this.#end === 'released' ? undefined : this.#end;
  }

  get isRenewed(): boolean {
    return this.#isRenewed;
  }

  /** What its handles use. */
  get shared(): Pick<HeldLockParts, 'events' | 'leaseLimits' | 'verifier'> {
    return this.#parts;
  }

  /** Renews it and detects its end from now on. */
  start(): void {
    this.#listNode = this.#parts.list.add(this);
    this.#schedule();
  }

  isUsedBy(handle: CurrentHandle): boolean {
    return this.#handle === handle;
  }

  /** Makes the handle the current one. Returns its fencing token. */
  use(handle: CurrentHandle): bigint {
    this.#handle = handle;
    return this.grant.takeToken();
  }

  /** The grant is up to date when the promise settles. */
  renew(leaseMs: number, moreTokens?: number): Promise<RenewResult> {
    return this.#parts.renewer.renew(this.grant, leaseMs, () => this.#onGrantLost(), moreTokens);
  }

  /** Checks that the store still has the grant. If not, the lock is lost. */
  confirm(): Promise<RenewResult> {
    return this.#parts.renewer.confirm(this.grant, () => this.#onGrantLost());
  }

  /** Asks the store about the grant, for the {@link LeaseVerifier}. */
  async verifyAtStore(): Promise<RenewResult> {
    const { renewer, releaser } = this.#parts;
    if (releaser.isStopped) return unknownResult(applicationEndedError(this.grant.key));
    const result = this.#isRenewed
      ? await this.renew(this.grant.leaseMs)
      : await renewer.readRemaining(this.grant, () => this.#onGrantLost());
    this.#schedule();
    return result;
  }

  /** The timer: the next renewal or the end of validity is due. */
  onDue(): void {
    const { clock, renewer, list } = this.#parts;
    const nowMs = clock.monotonicMs();
    renewer.detectStall(this.grant, nowMs - (this.#timer?.atMs ?? nowMs), list.size);
    this.detectLoss();
    if (!this.#listNode) return;
    if (nowMs >= this.#renewAtMs) void this.#renewInTime();
    this.#schedule();
  }

  /** Stops the renewal. The end of the lease is still detected. */
  stopRenewing(): void {
    this.#isRenewed = false;
    this.#renewAtMs = Infinity;
    this.#schedule();
  }

  /** Stops the renewal and the detection of its end. */
  drop(): void {
    this.#listNode?.remove();
    this.#listNode = undefined;
    this.#timer?.cancel();
  }

  /** Aborts the signal of the work. The lock stays held. */
  abort(reason: Error): void {
    if (this.isHeld) this.#handle?.abort(reason);
  }

  /** Reads the clock: in a process that was stopped, a read may come before the timer. */
  detectLoss(): void {
    if (this.isHeld && this.grant.isOver)
      this.#lose(leaseExpiredError(this.grant.key, this.grant.leaseMs, this.#isRenewed));
  }

  /** Releases it, or hands it over to the next caller of this process. */
  release(handle: CurrentHandle, { onResult, onSent }: ReleaseListener): void {
    const { key } = this.grant;
    const { releaser } = this.#parts;
    if (releaser.isStopped) {
      this.#end = 'released';
      onResult?.(unknownResult(lateReleaseError(key)));
    } else if (this.#queue?.tryHandOff(this)) {
      publishReleased(key, handle, this.#parts);
      onResult?.({ kind: 'released' });
    } else {
      this.#end = 'released';
      this.drop();
      const onEnd = (result: ReleaseResult) => {
        this.#queue?.onHeldLockEnded(this, result);
        publishEnd(key, handle, result, this.#parts);
        this.#parts.onEnded(this);
        onResult?.(result);
      };
      releaser.release(this.grant.releaseRequest, this.grant.latestStoreEndMs, { onResult: onEnd, onSent });
    }
  }

  /**
   * Releases a lost lock after its work has ended: a renewal whose result was lost may have extended it in the store. The
   * lease of a job run is left to expire, because the process that takes the run over counts from its end.
   */
  releaseLost(onSent?: () => void): void {
    const { grant } = this;
    if (!this.loss || this.#hasReleasedLost || grant.isRun || grant.lastsForMs <= 0) return onSent?.();
    this.#hasReleasedLost = true;
    this.#parts.releaser.release(grant.request, grant.latestStoreEndMs, { onResult: onSent, onSent });
  }

  /** Makes it lost for this reason, and leaves the grant in the store until its lease ends there. */
  loseWithoutRelease(reason: LockLostError): void {
    this.#hasReleasedLost = true;
    this.#lose(reason);
  }

  #onGrantLost(): void {
    this.#lose(grantLostError(this.grant.key));
  }

  /** Marks the lock as lost, aborts the signal of its work and reports the loss. */
  #lose(error: LockLostError): void {
    if (!this.isHeld) return;
    this.#end = error;
    this.#handle?.abort(error);
    this.drop();
    this.#queue?.onHeldLockEnded(this);
    const { key, currentToken } = this.grant;
    this.#parts.events.emit('lost', { key, fencingToken: currentToken, error }, this.#handle);
    this.#parts.onEnded(this);
  }

  #schedule(): void {
    if (!this.#listNode) return;
    this.#timer?.cancel();
    const atMs = Math.min(this.#renewAtMs, this.grant.validUntilMs);
    this.#timer = this.#parts.timerWheel.add(atMs, this);
  }

  async #renewInTime(): Promise<void> {
    const { renewer, events } = this.#parts;
    const { grant } = this;
    this.#renewAtMs = Infinity;
    const result = await this.renew(grant.leaseMs);
    if (!this.#listNode) return;
    const { key, currentToken: fencingToken } = grant;
    if (result.kind === 'renewed') {
      this.#failures = 0;
      this.#renewAtMs = renewer.dueAtMs(grant);
      events.emit('renewed', { key, fencingToken }, this.#handle);
    } else if (result.kind === 'unknown') {
      this.#failures += 1;
      this.#renewAtMs = renewer.retryAtMs(grant);
      const remainingMs = grant.clocksAgree ? Math.max(grant.remainingMs, 0) : 0;
      const failure = { failures: this.#failures, remainingMs, cause: result.cause };
      events.emit('renewal-failed', { key, fencingToken, ...failure }, this.#handle);
    }
    if (!this.#isRenewed) this.#renewAtMs = Infinity;
    this.#schedule();
  }
}
