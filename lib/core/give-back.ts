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
  readonly #sent = new Underway();
  #isStopped = false;

  constructor(parts: GiveBackParts) {
    this.#parts = parts;
  }

  /** Releases what is held; tells what the store said first. */
  release(claim: ReleaseRequest, untilMs: number, onAnswer?: (answer: ReleaseAnswer) => void): void {
    this.#send(new Return({ claim, untilMs, isDone: isKnown, hear: this.#hear, onAnswer }));
  }

  /**
   * Withdraws an acquisition with an unknown outcome. As it may still reach the store after a release that found
   * nothing, the release is repeated until one has found it or it could no longer be held.
   */
  abandon(claim: Claim, untilMs: number): void {
    this.#send(new Return({ claim, untilMs, isDone: isFound, hear: this.#hear, onAnswer: undefined }));
  }

  /** Settles when what has been sent is answered. */
  settled(): Promise<void> {
    return this.#sent.ended();
  }

  /** Tries nothing again from now on. */
  stop(): void {
    this.#isStopped = true;
    for (const pause of this.#pauses) this.#parts.agenda.remove(pause);
    this.#pauses.clear();
  }

  #send(giving: Return): void {
    this.#sent.begin();
    this.#parts.courier.send('release', giving);
  }

  readonly #hear = (giving: Return, isDone: boolean): void => {
    this.#sent.end();
    if (isDone || this.#isStopped) return;
    const atMs = this.#parts.clock.monotonicMs() + giving.pauseMs;
    if (atMs > giving.untilMs) return;
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
}

interface ReturnParts {
  readonly claim: ReleaseRequest;
  /** The monotonic time from which the store cannot think any more that the claim holds. */
  readonly untilMs: number;
  readonly isDone: (answer: ReleaseAnswer) => boolean;
  readonly hear: (giving: Return, isDone: boolean) => void;
  /** Hears the first answer. */
  readonly onAnswer: ((answer: ReleaseAnswer) => void) | undefined;
}

/** A claim that is given back again and again, until an answer is good enough or time has done it. */
class Return implements ReleaseErrand {
  readonly limitMs = LIMIT_MS;
  readonly request: ReleaseRequest;
  readonly untilMs: number;
  pauseMs = FIRST_PAUSE_MS;
  readonly #isDone: ReturnParts['isDone'];
  readonly #hear: ReturnParts['hear'];
  #onAnswer: ReturnParts['onAnswer'];

  constructor({ claim, untilMs, isDone, hear, onAnswer }: ReturnParts) {
    this.request = claim;
    this.untilMs = untilMs;
    this.#isDone = isDone;
    this.#hear = hear;
    this.#onAnswer = onAnswer;
  }

  hear(answer: ReleaseAnswer): void {
    const tell = this.#onAnswer;
    this.#onAnswer = undefined;
    this.#hear(this, this.#isDone(answer));
    tell?.(answer);
  }
}

const isKnown = (answer: ReleaseAnswer) => answer.kind !== 'unknown';
const isFound = (answer: ReleaseAnswer) => answer.kind === 'released';
