import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type Claim,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RenewRequest,
  type Requests,
  type Unknown,
  unknown,
} from './backend.js';
import type { Moment } from './clock.js';
import { NoAnswerInTime } from './no-answer-in-time.js';

/** A request for the store, and who hears of it. `sentAt`: it took effect later than that, if it did. */
interface Errand<Request extends Claim, Answer> {
  readonly request: Request;
  /** How long an answer is of use, in ms from the moment it was sent. */
  readonly limitMs: number;
  /** Called once, within the limit. */
  hear(answer: Answer | Unknown, sentAt: Moment): void;
  /** Called with an answer that comes after all. */
  hearLate?(answer: Answer, sentAt: Moment): void;
}

export type AcquireErrand = Errand<AcquireRequest, AcquireAnswer>;
type RenewErrand = Errand<RenewRequest, RenewAnswer>;
export type ReleaseErrand = Errand<ReleaseRequest, ReleaseAnswer>;
export interface Errands {
  readonly release: ReleaseErrand;
  readonly renew: RenewErrand;
  readonly acquire: AcquireErrand;
}

export type Verb = keyof Errands;

/** Whatever it asks for. */
type AnyErrand = Errand<Claim, never>;

const UNANSWERED = unknown(new Error('the backend left a request without an answer'));

/** What goes to the store together: no key twice, so that what is asked of a key keeps its order. */
export class Batch {
  readonly #lists: { readonly [V in Verb]: Errands[V][] } = { release: [], renew: [], acquire: [] };
  readonly #keys = new Set<string>();
  #givenUp: Set<AnyErrand> | undefined;
  #onSent: (() => void)[] | undefined;
  #shortestLimitMs = Infinity;
  #longestLimitMs = 0;

  /** Whether nothing is asked of the key yet. */
  fits({ request }: AnyErrand): boolean {
    return !this.#keys.has(request.key);
  }

  add<V extends Verb>(verb: V, errand: Errands[V]): void {
    const { request, limitMs } = errand;
    this.#lists[verb].push(errand);
    this.#keys.add(request.key);
    this.#shortestLimitMs = Math.min(this.#shortestLimitMs, limitMs);
    this.#longestLimitMs = Math.max(this.#longestLimitMs, limitMs);
  }

  get size(): number {
    return this.#keys.size;
  }

  get shortestLimitMs(): number {
    return this.#shortestLimitMs;
  }

  get longestLimitMs(): number {
    return this.#longestLimitMs;
  }

  /** Settles once the batch has been handed to the backend. */
  sent(): Promise<void> {
    return new Promise((resolve) => (this.#onSent ??= []).push(resolve));
  }

  tellSent(): void {
    for (const tell of this.#onSent ?? []) tell();
  }

  get requests(): Requests {
    const { release, renew, acquire } = this.#lists;
    const requests: { -readonly [V in Verb]?: Requests[V] } = {};
    if (release.length > 0) requests.release = release.map(({ request }) => request);
    if (renew.length > 0) requests.renew = renew.map(({ request }) => request);
    if (acquire.length > 0) requests.acquire = acquire.map(({ request }) => request);
    return requests;
  }

  answered(answers: Answers, sentAt: Moment, tookMs: number): void {
    const tell = <Answer extends { kind: string }>(
      errands: readonly Errand<Claim, Answer>[],
      heard: readonly (Answer | Unknown)[],
    ) => errands.forEach((errand, index) => this.#tell(errand, heard[index] ?? UNANSWERED, sentAt, tookMs));
    tell(this.#lists.release, answers.release);
    tell(this.#lists.renew, answers.renew);
    tell(this.#lists.acquire, answers.acquire);
  }

  failed(cause: unknown, sentAt: Moment, tookMs: number): void {
    const answer = unknown(cause);
    for (const errand of this.#errands()) this.#tell<never>(errand, answer, sentAt, tookMs);
  }

  /** Tells those whose limit is over. Answers the next limit, `Infinity` if there is none. */
  giveUp(overMs: number, sentAt: Moment): number {
    let nextMs = Infinity;
    for (const errand of this.#errands()) {
      if (errand.limitMs <= overMs) this.#giveUp(errand, sentAt);
      else nextMs = Math.min(nextMs, errand.limitMs);
    }
    return nextMs;
  }

  #tell<Answer extends { kind: string }>(
    errand: Errand<Claim, Answer>,
    answer: Answer | Unknown,
    sentAt: Moment,
    tookMs: number,
  ): void {
    // A blocked event loop may see the answer before the timer: the clock decides, not their order.
    if (tookMs <= errand.limitMs && !this.#givenUp?.has(errand)) {
      errand.hear(answer, sentAt);
      return;
    }
    this.#giveUp(errand, sentAt);
    if (answer.kind !== 'unknown') errand.hearLate?.(answer as Answer, sentAt);
  }

  #giveUp(errand: AnyErrand, sentAt: Moment): void {
    const givenUp = (this.#givenUp ??= new Set());
    if (givenUp.has(errand)) return;
    givenUp.add(errand);
    errand.hear(unknown(new NoAnswerInTime(errand.limitMs)), sentAt);
  }

  #errands(): AnyErrand[] {
    const { release, renew, acquire } = this.#lists;
    return [...release, ...renew, ...acquire];
  }
}
