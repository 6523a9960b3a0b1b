import type { AcquisitionId, ReleaseRequest } from '../backend.js';
import type { ReleaseResult } from '../backend-results.js';
import type { Clock, Moment } from '../clock.js';
import type { Batcher } from '../requests/batcher.js';
import { InFlight } from '../requests/in-flight.js';
import { PendingRequest } from '../requests/pending-request.js';
import type { TimerWheel, WheelTimer } from '../timer-wheel.js';

const RELEASE_TIMEOUT_MS = 2_000;
const MIN_RETRY_DELAY_MS = 50;
const MAX_RETRY_DELAY_MS = 1_000;
/** No acquisition reaches the store later than this after its outcome was found to be unknown. */
const MAX_DELAY_MS = 60_000;

/** What the caller of a release gets to know. */
export interface ReleaseListener {
  /** The first result of the store. */
  readonly onResult?: ((result: ReleaseResult) => void) | undefined;
  /** The release has left this process. Not called if only its result shows that. */
  readonly onSent?: (() => void) | undefined;
}

interface ReleaserParts {
  readonly batcher: Batcher;
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/**
 * Releases grants. While the store does not answer, it retries until the lease has ended by itself. The holder is
 * unique to one acquisition, so a late release never affects the next holder.
 */
export class Releaser {
  readonly #parts: ReleaserParts;
  readonly #retries = new Set<WheelTimer>();
  readonly #inFlight = new InFlight();
  #isStopped = false;

  constructor(parts: ReleaserParts) {
    this.#parts = parts;
  }

  /**
   * Releases a held key. `untilMs` is the monotonic time at which its lease has ended in the store for certain.
   * Retries go on in the background after the first result.
   */
  release(request: ReleaseRequest, untilMs: number, listener?: ReleaseListener): void {
    this.#begin(new Release(request, untilMs, isKnown, listener));
  }

  /**
   * Withdraws an acquisition with an unknown outcome. It may reach the store after a release that found nothing. So the
   * release is repeated until one has found the grant, until its lease would have ended, or until it can arrive no more.
   */
  withdraw(acquisition: AcquisitionId, untilMs: number): void {
    const latestArrivalMs = this.#parts.clock.monotonicMs() + MAX_DELAY_MS;
    const isDone = (result: ReleaseResult, sentAt: Moment) =>
      isFound(result) || (isKnown(result) && sentAt.monotonicMs > latestArrivalMs);
    this.#begin(new Release(acquisition, untilMs, isDone));
  }

  /** Resolves when the store has answered every release, or the lease has ended. */
  whenSettled(): Promise<void> {
    return this.#inFlight.whenIdle();
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Retries nothing from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const retry of this.#retries) retry.cancel();
    this.#retries.clear();
  }

  #begin(release: Release): void {
    this.#inFlight.begin();
    this.#send(release);
  }

  #send(release: Release): void {
    this.#parts.batcher.send(new ReleaseTry(release, this.#onResult));
  }

  readonly #onResult = (release: Release, result: ReleaseResult, sentAt: Moment): void => {
    const { isDone, listener } = release;
    release.listener = undefined;
    if (isKnown(result)) this.#settle(release);
    if (!isDone(result, sentAt) && !this.#isStopped) this.#retry(release);
    listener?.onResult?.(result);
  };

  #settle(release: Release): void {
    if (!release.isSettled) this.#inFlight.end();
    release.isSettled = true;
  }

  #retry(release: Release): void {
    const { clock, timerWheel } = this.#parts;
    const atMs = clock.monotonicMs() + release.retryDelayMs;
    release.retryDelayMs = Math.min(release.retryDelayMs * 2, MAX_RETRY_DELAY_MS);
    if (atMs > release.untilMs) {
      this.#settle(release);
      return;
    }
    const run = () => {
      this.#retries.delete(retry);
      this.#send(release);
    };
    const retry = timerWheel.add(atMs, { onDue: run });
    this.#retries.add(retry);
  }
}

type IsDone = (result: ReleaseResult, sentAt: Moment) => boolean;

/** The release of one grant, with all its tries. */
class Release {
  readonly request: ReleaseRequest;
  readonly untilMs: number;
  /** Whether no try is needed after this result. */
  readonly isDone: IsDone;
  listener: ReleaseListener | undefined;
  retryDelayMs = MIN_RETRY_DELAY_MS;
  isSettled = false;

  constructor(request: ReleaseRequest, untilMs: number, isDone: IsDone, listener?: ReleaseListener) {
    this.request = request;
    this.untilMs = untilMs;
    this.isDone = isDone;
    this.listener = listener;
  }
}

type OnResult = (release: Release, result: ReleaseResult, sentAt: Moment) => void;

class ReleaseTry extends PendingRequest<'release'> {
  readonly #release: Release;
  readonly #onResult: OnResult;

  constructor(release: Release, onResult: OnResult) {
    super('release', release.request, RELEASE_TIMEOUT_MS);
    this.#release = release;
    this.#onResult = onResult;
  }

  override onSent(): void {
    this.#release.listener?.onSent?.();
  }

  protected onResult(result: ReleaseResult, sentAt: Moment): void {
    this.#onResult(this.#release, result, sentAt);
  }
}

const isKnown = (result: ReleaseResult) => result.kind !== 'unknown';
const isFound = (result: ReleaseResult) => result.kind === 'released';
