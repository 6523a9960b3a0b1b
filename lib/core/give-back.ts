import type { Agenda, Entry } from './agenda.js';
import type { Claim, ReleaseAnswer } from './backend.js';
import type { Clock } from './clock.js';
import type { Courier } from './courier.js';
import { Underway } from './underway.js';

const LIMIT_MS = 2_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

interface GiveBackParts {
  readonly courier: Courier;
  readonly clock: Clock;
  readonly agenda: Agenda;
}

/**
 * Gives claims back, and keeps at it while the store is silent until the lease has ended by itself. The claim's
 * holder is unique to one acquisition, so a late try never touches the next holder.
 */
export class GiveBack {
  readonly #courier: Courier;
  readonly #clock: Clock;
  readonly #agenda: Agenda;
  readonly #pauses = new Set<Entry>();
  readonly #sent = new Underway();
  #isStopped = false;

  constructor({ courier, clock, agenda }: GiveBackParts) {
    this.#courier = courier;
    this.#clock = clock;
    this.#agenda = agenda;
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
  settled(): Promise<void> {
    return this.#sent.ended();
  }

  /** Tries nothing again from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const pause of this.#pauses) this.#agenda.remove(pause);
    this.#pauses.clear();
  }

  #tryAgain(
    claim: Claim,
    untilMs: number,
    pauseMs: number,
    isDone: (answer: ReleaseAnswer) => boolean,
  ): void {
    const atMs = this.#clock.monotonicMs() + pauseMs;
    if (this.#isStopped || atMs > untilMs) return;
    const pause = this.#agenda.add(atMs, () => {
      this.#pauses.delete(pause);
      void this.#send(claim).then((answer) => {
        if (!isDone(answer)) this.#tryAgain(claim, untilMs, Math.min(pauseMs * 2, LONGEST_PAUSE_MS), isDone);
      });
    });
    this.#pauses.add(pause);
  }

  async #send(claim: Claim): Promise<ReleaseAnswer> {
    this.#sent.begin();
    const { answer } = await this.#courier.release(claim, { limitMs: LIMIT_MS });
    this.#sent.end();
    return answer;
  }
}
