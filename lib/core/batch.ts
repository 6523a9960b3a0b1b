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

/** Who hears the answer to a request. `sentAt`: the request took effect later than that, if it did. */
export interface Recipient<Answer> {
  /** How long an answer is of use, in ms from the moment it was sent. */
  readonly limitMs: number;
  /** Called once, within the limit. */
  hear(answer: Answer | Unknown, sentAt: Moment): void;
  /** Called with an answer that comes after all. */
  hearLate?(answer: Answer, sentAt: Moment): void;
}

/** One request on its way to the store. */
export class Errand<Request extends Claim, Answer extends { kind: string }> {
  readonly request: Request;
  readonly #recipient: Recipient<Answer>;
  #isGivenUp = false;

  constructor(request: Request, recipient: Recipient<Answer>) {
    this.request = request;
    this.#recipient = recipient;
  }

  get limitMs(): number {
    return this.#recipient.limitMs;
  }

  answered(answer: Answer | Unknown, sentAt: Moment, tookMs: number): void {
    // A blocked event loop may see the answer before the timer: the clock decides, not their order.
    if (tookMs <= this.limitMs) {
      this.#recipient.hear(answer, sentAt);
      return;
    }
    this.giveUp(sentAt);
    if (answer.kind !== 'unknown') this.#recipient.hearLate?.(answer as Answer, sentAt);
  }

  giveUp(sentAt: Moment): void {
    if (this.#isGivenUp) return;
    this.#isGivenUp = true;
    this.#recipient.hear(unknown(new NoAnswerInTime(this.limitMs)), sentAt);
  }
}

type AnyErrand =
  | Errand<AcquireRequest, AcquireAnswer>
  | Errand<RenewRequest, RenewAnswer>
  | Errand<ReleaseRequest, ReleaseAnswer>;

export type Verb = keyof Requests;

/** In the order in which a backend carries them out. */
const rankOf = { release: 0, renew: 1, acquire: 2 } as const satisfies Record<Verb, number>;

/** What goes to the store together: no key twice for one verb, and on each key in the order in which it was asked. */
export class Batch {
  readonly release: Errand<ReleaseRequest, ReleaseAnswer>[] = [];
  readonly renew: Errand<RenewRequest, RenewAnswer>[] = [];
  readonly acquire: Errand<AcquireRequest, AcquireAnswer>[] = [];
  readonly #ranks = new Map<string, number>();
  #onSent: (() => void)[] | undefined;
  #shortestLimitMs = Infinity;
  #longestLimitMs = 0;

  /** Whether the request would keep its place among those on the same key. */
  fits(verb: Verb, { key }: Claim): boolean {
    return (this.#ranks.get(key) ?? -1) < rankOf[verb];
  }

  /** Counts the request in, which is put into its list beside. */
  enter(verb: Verb, { key }: Claim, limitMs: number): void {
    this.#ranks.set(key, rankOf[verb]);
    this.#shortestLimitMs = Math.min(this.#shortestLimitMs, limitMs);
    this.#longestLimitMs = Math.max(this.#longestLimitMs, limitMs);
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
    const requests: { -readonly [V in Verb]?: Requests[V] } = {};
    if (this.release.length > 0) requests.release = this.release.map(({ request }) => request);
    if (this.renew.length > 0) requests.renew = this.renew.map(({ request }) => request);
    if (this.acquire.length > 0) requests.acquire = this.acquire.map(({ request }) => request);
    return requests;
  }

  get errands(): AnyErrand[] {
    return [...this.release, ...this.renew, ...this.acquire];
  }

  answered(answers: Answers, sentAt: Moment, tookMs: number): void {
    hear(this.release, answers.release, sentAt, tookMs);
    hear(this.renew, answers.renew, sentAt, tookMs);
    hear(this.acquire, answers.acquire, sentAt, tookMs);
  }

  failed(cause: unknown, sentAt: Moment, tookMs: number): void {
    const answer = unknown(cause);
    for (const errand of this.errands) errand.answered(answer, sentAt, tookMs);
  }
}

function hear<Request extends Claim, Answer extends { kind: string }>(
  errands: readonly Errand<Request, Answer>[],
  answers: readonly (Answer | Unknown)[],
  sentAt: Moment,
  tookMs: number,
): void {
  for (const [index, errand] of errands.entries()) {
    const answer = answers[index] ?? unknown(new Error('the backend left a request without an answer'));
    errand.answered(answer, sentAt, tookMs);
  }
}
