import type { Claim, ReleaseRequest, ReleaseResult } from '../backend.js';
import type { Clock } from '../clock.js';
import type { PendingReleaseRequest } from '../requests/batch.js';
import type { Batcher } from '../requests/batcher.js';
import { InFlight } from '../requests/in-flight.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';

const RELEASE_TIMEOUT_MS = 2_000;
const MIN_RETRY_DELAY_MS = 50;
const MAX_RETRY_DELAY_MS = 1_000;

interface ReleaserParts {
  readonly batcher: Batcher;
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/**
 * Releases claims. While the store does not answer, it retries until the lease has ended by itself. The holder of a
 * claim is unique to one acquisition, so a late release never affects the next holder.
 */
export class Releaser {
  readonly #parts: ReleaserParts;
  readonly #retries = new Set<TimerEntry>();
  readonly #inFlight = new InFlight();
  #isStopped = false;

  constructor(parts: ReleaserParts) {
    this.#parts = parts;
  }

  /** Releases a held key. `onResult` gets the first result; retries go on in the background. */
  release(claim: ReleaseRequest, untilMs: number, onResult?: (result: ReleaseResult) => void): void {
    this.#begin(
      new RepeatedRelease({
        claim,
        untilMs,
        isDone: isKnown,
        onEachResult: this.#onResult,
        onFirstResult: onResult,
      }),
    );
  }

  /**
   * Withdraws an acquisition with an unknown outcome. It may reach the store after a release that found nothing. So the
   * release is repeated until one has found the grant, or until its lease would have ended.
   */
  withdraw(claim: Claim, untilMs: number): void {
    this.#begin(
      new RepeatedRelease({
        claim,
        untilMs,
        isDone: isFound,
        onEachResult: this.#onResult,
        onFirstResult: undefined,
      }),
    );
  }

  /** Resolves when the store has answered every release, or the lease of the claim has ended. */
  whenSettled(): Promise<void> {
    return this.#inFlight.whenIdle();
  }

  /** Retries nothing from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const retry of this.#retries) this.#parts.timerWheel.remove(retry);
    this.#retries.clear();
  }

  #begin(release: RepeatedRelease): void {
    this.#inFlight.begin();
    this.#send(release);
  }

  #send(release: RepeatedRelease): void {
    this.#parts.batcher.send('release', release);
  }

  readonly #onResult = (release: RepeatedRelease, result: ReleaseResult): void => {
    if (isKnown(result)) this.#markSettled(release);
    if (release.isDone(result) || this.#isStopped) return;
    const atMs = this.#parts.clock.monotonicMs() + release.retryDelayMs;
    if (atMs > release.untilMs) {
      this.#markSettled(release);
      return;
    }
    const retry = this.#parts.timerWheel.add({
      atMs,
      run: () => {
        this.#retries.delete(retry);
        release.retryDelayMs = Math.min(release.retryDelayMs * 2, MAX_RETRY_DELAY_MS);
        this.#send(release);
      },
    });
    this.#retries.add(retry);
  };

  #markSettled(release: RepeatedRelease): void {
    if (release.isSettled) return;
    release.isSettled = true;
    this.#inFlight.end();
  }
}

interface RepeatedReleaseParts {
  readonly claim: ReleaseRequest;
  /** The monotonic time at which the lease of the claim has ended in the store for certain. */
  readonly untilMs: number;
  readonly isDone: (result: ReleaseResult) => boolean;
  readonly onEachResult: (release: RepeatedRelease, result: ReleaseResult) => void;
  readonly onFirstResult: ((result: ReleaseResult) => void) | undefined;
}

/** A release that is repeated until a result is final or the lease has ended. */
class RepeatedRelease implements PendingReleaseRequest {
  readonly timeoutMs = RELEASE_TIMEOUT_MS;
  readonly request: ReleaseRequest;
  readonly untilMs: number;
  readonly isDone: RepeatedReleaseParts['isDone'];
  retryDelayMs = MIN_RETRY_DELAY_MS;
  isSettled = false;
  readonly #onEachResult: RepeatedReleaseParts['onEachResult'];
  #onFirstResult: RepeatedReleaseParts['onFirstResult'];

  constructor({ claim, untilMs, isDone, onEachResult, onFirstResult }: RepeatedReleaseParts) {
    this.request = claim;
    this.untilMs = untilMs;
    this.isDone = isDone;
    this.#onEachResult = onEachResult;
    this.#onFirstResult = onFirstResult;
  }

  onResult(result: ReleaseResult): void {
    const onFirstResult = this.#onFirstResult;
    this.#onFirstResult = undefined;
    this.#onEachResult(this, result);
    onFirstResult?.(result);
  }
}

const isKnown = (result: ReleaseResult) => result.kind !== 'unknown';
const isFound = (result: ReleaseResult) => result.kind === 'released';
