import type { Claim, ReleaseAnswer } from './backend.js';
import type { Clock, Timer } from './clock.js';
import type { Courier } from './courier.js';

const LIMIT_MS = 2_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/**
 * Gives claims back, and keeps at it while the store is silent until the lease has ended by itself. The claim's
 * holder is unique to one acquisition, so a late try never touches the next holder.
 */
export class GiveBack {
  readonly #courier: Courier;
  readonly #clock: Clock;
  readonly #pauses = new Set<Timer>();
  readonly #sent = new Set<Promise<ReleaseAnswer>>();
  #isStopped = false;

  constructor(courier: Courier, clock: Clock) {
    this.#courier = courier;
    this.#clock = clock;
  }

  /** Releases what is held; answers what the store said first. */
  async release(claim: Claim, untilMs: number): Promise<ReleaseAnswer> {
    const answer = await this.#send(claim);
    if (answer.kind === 'unknown') {
      this.#tryAgain(claim, untilMs, FIRST_PAUSE_MS, (later) => later.kind !== 'unknown');
    }
    return answer;
  }

  /**
   * Withdraws an acquisition with an unknown outcome. As it may still reach the store after a release that found
   * nothing, the release is repeated until one has found it or it could no longer be held.
   */
  async abandon(claim: Claim, untilMs: number): Promise<void> {
    const answer = await this.#send(claim);
    if (answer.kind !== 'released') {
      this.#tryAgain(claim, untilMs, FIRST_PAUSE_MS, (later) => later.kind === 'released');
    }
  }

  /** Settles when what has been sent is answered. */
  async settled(): Promise<void> {
    await Promise.all(this.#sent);
  }

  /** Tries nothing again from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const pause of this.#pauses) pause.cancel();
    this.#pauses.clear();
  }

  #tryAgain(
    claim: Claim,
    untilMs: number,
    pauseMs: number,
    isDone: (answer: ReleaseAnswer) => boolean,
  ): void {
    if (this.#isStopped || this.#clock.monotonicMs() + pauseMs > untilMs) return;
    const pause = this.#clock.after(pauseMs, () => {
      this.#pauses.delete(pause);
      void this.#send(claim).then((answer) => {
        if (!isDone(answer)) this.#tryAgain(claim, untilMs, Math.min(pauseMs * 2, LONGEST_PAUSE_MS), isDone);
      });
    });
    this.#pauses.add(pause);
  }

  #send(claim: Claim): Promise<ReleaseAnswer> {
    const answer = this.#courier.release(claim, { limitMs: LIMIT_MS });
    this.#sent.add(answer);
    void answer.then(() => this.#sent.delete(answer));
    return answer;
  }
}
