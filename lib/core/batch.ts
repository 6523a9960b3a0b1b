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

/** What came back for a request, and when it was sent: the store took effect later than that. */
export interface Delivered<Answer> {
  readonly answer: Answer;
  readonly sentAt: Moment;
}

/** How a request wishes to be answered. */
export interface Delivery<Answer> {
  /** How long an answer is of use. */
  readonly limitMs: number;
  /** Hears the answer if it comes after the limit. */
  readonly onLate?: (delivered: Delivered<Answer>) => void;
}

/** One request on its way to the store. */
export class Errand<Request extends Claim, Answer extends { kind: string }> {
  readonly request: Request;
  readonly #delivery: Delivery<Answer>;
  readonly #resolve: (delivered: Delivered<Answer | Unknown>) => void;
  #isGivenUp = false;

  constructor(
    request: Request,
    delivery: Delivery<Answer>,
    resolve: (delivered: Delivered<Answer | Unknown>) => void,
  ) {
    this.request = request;
    this.#delivery = delivery;
    this.#resolve = resolve;
  }

  get limitMs(): number {
    return this.#delivery.limitMs;
  }

  answered(answer: Answer | Unknown, sentAt: Moment, tookMs: number): void {
    // A blocked event loop may see the answer before the timer: the clock decides, not their order.
    if (tookMs <= this.limitMs) {
      this.#resolve({ answer, sentAt });
      return;
    }
    this.giveUp(sentAt);
    if (answer.kind !== 'unknown') this.#delivery.onLate?.({ answer: answer as Answer, sentAt });
  }

  giveUp(sentAt: Moment): void {
    if (this.#isGivenUp) return;
    this.#isGivenUp = true;
    this.#resolve({ answer: unknown(new NoAnswerInTime(this.limitMs)), sentAt });
  }
}

export type AnyErrand =
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
  #onSent: (() => void)[] = [];

  /** Whether the request would keep its place among those on the same key. */
  fits(verb: Verb, { key }: Claim): boolean {
    return (this.#ranks.get(key) ?? -1) < rankOf[verb];
  }

  enter(verb: Verb, { key }: Claim): void {
    this.#ranks.set(key, rankOf[verb]);
  }

  /** Settles once the batch has been handed to the backend. */
  sent(): Promise<void> {
    return new Promise((resolve) => this.#onSent.push(resolve));
  }

  tellSent(): void {
    for (const tell of this.#onSent) tell();
    this.#onSent = [];
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
}

function hear<Request extends Claim, Answer extends { kind: string }>(
  errands: readonly Errand<Request, Answer>[],
  answers: readonly (Answer | Unknown)[],
  sentAt: Moment,
  tookMs: number,
): void {
  errands.forEach((errand, index) =>
    errand.answered(
      answers[index] ?? unknown(new Error('the backend left a request without an answer')),
      sentAt,
      tookMs,
    ),
  );
}
