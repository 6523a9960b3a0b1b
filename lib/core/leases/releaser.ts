import type { Claim, ReleaseRequest, ReleaseResult } from '../backend.js';
import type { Clock } from '../clock.js';
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

  /**
   * Releases a held key. `untilMs` is the monotonic time at which its lease has ended in the store for certain.
   * `onResult` gets the first result; retries go on in the background.
   */
  release(claim: ReleaseRequest, untilMs: number, onResult?: (result: ReleaseResult) => void): void {
    this.#repeat(claim, untilMs, isKnown, onResult);
  }

  /**
   * Withdraws an acquisition with an unknown outcome. It may reach the store after a release that found nothing. So the
   * release is repeated until one has found the grant, or until its lease would have ended.
   */
  withdraw(claim: Claim, untilMs: number): void {
    this.#repeat(claim, untilMs, isFound);
  }

  /** Resolves when the store has answered every release, or the lease of the claim has ended. */
  whenSettled(): Promise<void> {
    return this.#inFlight.whenIdle();
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Retries nothing from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const retry of this.#retries) this.#parts.timerWheel.remove(retry);
    this.#retries.clear();
  }

  /** Sends the release until a result is final or the lease has ended. */
  #repeat(
    request: ReleaseRequest,
    untilMs: number,
    isDone: (result: ReleaseResult) => boolean,
    onFirstResult?: (result: ReleaseResult) => void,
  ): void {
    let retryDelayMs = MIN_RETRY_DELAY_MS;
    let isSettled = false;
    const settle = () => {
      if (!isSettled) this.#inFlight.end();
      isSettled = true;
    };
    const onResult = (result: ReleaseResult) => {
      const notify = onFirstResult;
      onFirstResult = undefined;
      if (isKnown(result)) settle();
      if (!isDone(result) && !this.#isStopped) retry();
      notify?.(result);
    };
    const retry = () => {
      if (this.#parts.clock.monotonicMs() + retryDelayMs > untilMs) settle();
      else this.#retryIn(retryDelayMs, send);
      retryDelayMs = Math.min(retryDelayMs * 2, MAX_RETRY_DELAY_MS);
    };
    const send = () =>
      this.#parts.batcher.send('release', { request, timeoutMs: RELEASE_TIMEOUT_MS, onResult });
    this.#inFlight.begin();
    send();
  }

  #retryIn(delayMs: number, send: () => void): void {
    const { clock, timerWheel } = this.#parts;
    const run = () => {
      this.#retries.delete(retry);
      send();
    };
    const retry = timerWheel.add({ atMs: clock.monotonicMs() + delayMs, run });
    this.#retries.add(retry);
  }
}

const isKnown = (result: ReleaseResult) => result.kind !== 'unknown';
const isFound = (result: ReleaseResult) => result.kind === 'released';
