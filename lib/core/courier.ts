import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type LockBackend,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RenewRequest,
  type Requests,
  type Unknown,
  unknown,
} from './backend.js';
import type { Clock } from './clock.js';
import { LockShutdownError } from './errors.js';
import { NoAnswerInTime } from './no-answer-in-time.js';

export interface Delivery<Answer> {
  /** How long an answer is of use. */
  readonly limitMs: number;
  /** Hears the answer if it comes after the limit. */
  readonly onLate?: (answer: Answer) => void;
}

/**
 * Brings requests to the backend and always comes back: within the limit, never with a rejection. What went wrong
 * or took too long is `unknown`, since the request may have taken effect or may yet do so.
 */
export class Courier {
  readonly #backend: LockBackend;
  readonly #clock: Clock;
  #isClosed = false;

  constructor(backend: LockBackend, clock: Clock) {
    this.#backend = backend;
    this.#clock = clock;
  }

  acquire(request: AcquireRequest, delivery: Delivery<AcquireAnswer>): Promise<AcquireAnswer> {
    return this.#send({ acquire: [request] }, ({ acquire }) => acquire[0], delivery);
  }

  renew(request: RenewRequest, delivery: Delivery<RenewAnswer>): Promise<RenewAnswer> {
    return this.#send({ renew: [request] }, ({ renew }) => renew[0], delivery);
  }

  release(request: ReleaseRequest, delivery: Delivery<ReleaseAnswer>): Promise<ReleaseAnswer> {
    return this.#send({ release: [request] }, ({ release }) => release[0], delivery);
  }

  /** Brings nothing any more: a request would make the backend open again. */
  close(): void {
    this.#isClosed = true;
  }

  #send<Answer extends { kind: string }>(
    requests: Requests,
    pick: (answers: Answers) => Answer | undefined,
    { limitMs, onLate }: Delivery<Answer>,
  ): Promise<Answer | Unknown> {
    const sentAtMs = this.#clock.monotonicMs();
    return new Promise((resolve) => {
      const giveUp = () => resolve(unknown(new NoAnswerInTime(limitMs)));
      const timer = this.#clock.after(limitMs, giveUp);
      void this.#exchange(requests, limitMs, pick).then((answer) => {
        // A blocked event loop may see the answer before the timer: the clock decides, not their order.
        if (this.#clock.monotonicMs() - sentAtMs > limitMs) {
          giveUp();
          if (answer.kind !== 'unknown') onLate?.(answer as Answer);
        } else {
          timer.cancel();
          resolve(answer);
        }
      });
    });
  }

  async #exchange<Answer>(
    requests: Requests,
    limitMs: number,
    pick: (answers: Answers) => Answer | undefined,
  ): Promise<Answer | Unknown> {
    if (this.#isClosed) return unknown(new LockShutdownError('The application has ended.'));
    try {
      const answer = pick(await this.#backend.exchange(requests, limitMs));
      return (
        answer ?? unknown(new Error(`the backend ${this.#backend.name} left a request without an answer`))
      );
    } catch (cause) {
      return unknown(cause);
    }
  }
}
