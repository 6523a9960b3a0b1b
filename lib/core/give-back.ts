import type { Agenda, Entry } from './agenda.js';
import type { Claim, ReleaseAnswer, ReleaseRequest } from './backend.js';
import type { Clock } from './clock.js';
import type { ReleaseErrand } from './batch.js';
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
  readonly #parts: GiveBackParts;
  readonly #pauses = new Set<Entry>();
  readonly #unanswered = new Underway();
  #isStopped = false;

  constructor(parts: GiveBackParts) {
    this.#parts = parts;
  }

  /** Releases what is held; tells what the store said first. */
  release(claim: ReleaseRequest, untilMs: number, onAnswer?: (answer: ReleaseAnswer) => void): void {
    this.#begin(new Return({ claim, untilMs, isDone: isKnown, hear: this.#hear, onAnswer }));
  }

  /**
   * Withdraws an acquisition with an unknown outcome. As it may still reach the store after a release that found
   * nothing, the release is repeated until one has found it or it could no longer be held.
   */
  abandon(claim: Claim, untilMs: number): void {
    this.#begin(new Return({ claim, untilMs, isDone: isFound, hear: this.#hear, onAnswer: undefined }));
  }

  /** Settles when the store has answered each of them, or can no longer hold it. */
  settled(): Promise<void> {
    return this.#unanswered.ended();
  }

  /** Tries nothing again from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const pause of this.#pauses) this.#parts.agenda.remove(pause);
    this.#pauses.clear();
  }

  #begin(giving: Return): void {
    this.#unanswered.begin();
    this.#send(giving);
  }

  #send(giving: Return): void {
    this.#parts.courier.send('release', giving);
  }

  readonly #hear = (giving: Return, answer: ReleaseAnswer): void => {
    if (isKnown(answer)) this.#answered(giving);
    if (giving.isDone(answer) || this.#isStopped) return;
    const atMs = this.#parts.clock.monotonicMs() + giving.pauseMs;
    if (atMs > giving.untilMs) {
      this.#answered(giving);
      return;
    }
    const pause = this.#parts.agenda.add({
      atMs,
      run: () => {
        this.#pauses.delete(pause);
        giving.pauseMs = Math.min(giving.pauseMs * 2, LONGEST_PAUSE_MS);
        this.#send(giving);
      },
    });
    this.#pauses.add(pause);
  };

  #answered(giving: Return): void {
    if (giving.isAnswered) return;
    giving.isAnswered = true;
    this.#unanswered.end();
  }
}

interface ReturnParts {
  readonly claim: ReleaseRequest;
  /** The monotonic time from which the store cannot think any more that the claim holds. */
  readonly untilMs: number;
  readonly isDone: (answer: ReleaseAnswer) => boolean;
  readonly hear: (giving: Return, answer: ReleaseAnswer) => void;
  /** Hears the first answer. */
  readonly onAnswer: ((answer: ReleaseAnswer) => void) | undefined;
}

/** A claim that is given back again and again, until an answer is good enough or time has done it. */
class Return implements ReleaseErrand {
  readonly limitMs = LIMIT_MS;
  readonly request: ReleaseRequest;
  readonly untilMs: number;
  readonly isDone: ReturnParts['isDone'];
  pauseMs = FIRST_PAUSE_MS;
  isAnswered = false;
  readonly #hear: ReturnParts['hear'];
  #onAnswer: ReturnParts['onAnswer'];

  constructor({ claim, untilMs, isDone, hear, onAnswer }: ReturnParts) {
    this.request = claim;
    this.untilMs = untilMs;
    this.isDone = isDone;
    this.#hear = hear;
    this.#onAnswer = onAnswer;
  }

  hear(answer: ReleaseAnswer): void {
    const tell = this.#onAnswer;
    this.#onAnswer = undefined;
    this.#hear(this, answer);
    tell?.(answer);
  }
}

const isKnown = (answer: ReleaseAnswer) => answer.kind !== 'unknown';
const isFound = (answer: ReleaseAnswer) => answer.kind === 'released';
