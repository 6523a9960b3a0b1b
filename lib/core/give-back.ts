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

/** A claim that is given back again and again, until an answer is good enough or time has done it. */
interface Return {
  readonly claim: Claim;
  /** The monotonic time from which the store cannot think any more that the claim holds. */
  readonly untilMs: number;
  readonly isDone: (answer: ReleaseAnswer) => boolean;
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

  /** Releases what is held; tells what the store said first. */
  release(claim: Claim, untilMs: number, onAnswer?: (answer: ReleaseAnswer) => void): void {
    this.#try({ claim, untilMs, isDone: isKnown }, FIRST_PAUSE_MS, onAnswer);
  }

  /**
   * Withdraws an acquisition with an unknown outcome. As it may still reach the store after a release that found
   * nothing, the release is repeated until one has found it or it could no longer be held.
   */
  abandon(claim: Claim, untilMs: number): void {
    this.#try({ claim, untilMs, isDone: isFound }, FIRST_PAUSE_MS);
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

  #try(giving: Return, nextPauseMs: number, onAnswer?: (answer: ReleaseAnswer) => void): void {
    this.#sent.begin();
    this.#courier.release(giving.claim, {
      limitMs: LIMIT_MS,
      hear: (answer) => {
        this.#sent.end();
        if (!giving.isDone(answer)) this.#tryAgain(giving, nextPauseMs);
        onAnswer?.(answer);
      },
    });
  }

  #tryAgain(giving: Return, pauseMs: number): void {
    const atMs = this.#clock.monotonicMs() + pauseMs;
    if (this.#isStopped || atMs > giving.untilMs) return;
    const pause = this.#agenda.add({
      atMs,
      run: () => {
        this.#pauses.delete(pause);
        this.#try(giving, Math.min(pauseMs * 2, LONGEST_PAUSE_MS));
      },
    });
    this.#pauses.add(pause);
  }
}

const isKnown = (answer: ReleaseAnswer) => answer.kind !== 'unknown';
const isFound = (answer: ReleaseAnswer) => answer.kind === 'released';
