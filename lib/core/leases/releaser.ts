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
 * Gives claims back, and keeps at it while the store is silent until the lease has ended by itself. The claim's
 * holder is unique to one acquisition, so a late try never touches the next holder.
 */
export class Releaser {
  readonly #parts: ReleaserParts;
  readonly #retries = new Set<TimerEntry>();
  readonly #inFlight = new InFlight();
  #isStopped = false;

  constructor(parts: ReleaserParts) {
    this.#parts = parts;
  }

  /** Releases what is held; tells what the store said first. */
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
   * Withdraws an acquisition with an unknown outcome. As it may still reach the store after a release that found
   * nothing, the release is repeated until one has found it or it could no longer be held.
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

  /** Settles when the store has answered each of them, or can no longer hold it. */
  whenSettled(): Promise<void> {
    return this.#inFlight.whenIdle();
  }

  /** Tries nothing again from now on. */
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
  /** The monotonic time from which the store cannot think any more that the claim holds. */
  readonly untilMs: number;
  readonly isDone: (result: ReleaseResult) => boolean;
  readonly onEachResult: (release: RepeatedRelease, result: ReleaseResult) => void;
  /** Hears the first answer. */
  readonly onFirstResult: ((result: ReleaseResult) => void) | undefined;
}

/** A claim that is given back again and again, until an answer is good enough or time has done it. */
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
