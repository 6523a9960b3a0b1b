import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RenewRequest,
  type Requests,
  neverSent,
  unknown,
} from '../../core/backend.js';
import { type Timer, systemClock } from '../../core/clock.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';

/** In the order in which they take effect within one exchange. */
export const VERBS = ['release', 'renew', 'acquire'] as const;
export type Verb = (typeof VERBS)[number];

export interface RequestOf {
  release: ReleaseRequest;
  renew: RenewRequest;
  acquire: AcquireRequest;
}

export interface AnswerOf {
  release: ReleaseAnswer;
  renew: RenewAnswer;
  acquire: AcquireAnswer;
}

/** One request on its way to the database and back. */
export interface Errand<V extends Verb = Verb> {
  readonly call: Call;
  readonly verb: V;
  readonly request: RequestOf[V];
  /** Its place among the requests of its verb. */
  readonly index: number;
  wasSent: boolean;
}

/** One exchange, until each of its requests has its answer or its time is over. */
export class Call {
  readonly answered: Promise<Answers>;
  readonly errands: readonly Errand[];
  readonly endsAtMs: number;
  readonly #limitMs: number;
  readonly #answers: Readonly<Record<Verb, (AnswerOf[Verb] | undefined)[]>>;
  readonly #timer: Timer;
  #resolve: (answers: Answers) => void = () => undefined;
  #left: number;

  constructor(requests: Requests, limitMs: number) {
    const { release = [], renew = [], acquire = [] } = requests;
    this.errands = [
      ...release.map((request, index) => this.#errand('release', request, index)),
      ...renew.map((request, index) => this.#errand('renew', request, index)),
      ...acquire.map((request, index) => this.#errand('acquire', request, index)),
    ];
    this.#answers = {
      release: Array<ReleaseAnswer>(release.length),
      renew: Array<RenewAnswer>(renew.length),
      acquire: Array<AcquireAnswer>(acquire.length),
    };
    this.#left = this.errands.length;
    this.#limitMs = limitMs;
    this.endsAtMs = systemClock.monotonicMs() + limitMs;
    this.answered = new Promise((resolve) => (this.#resolve = resolve));
    this.#timer = systemClock.after(limitMs, () => this.end());
    if (this.#left === 0) this.#finish();
  }

  get isOver(): boolean {
    return this.#left === 0;
  }

  /** The first answer counts. */
  tell(errand: Errand, answer: AnswerOf[Verb]): void {
    const answers = this.#answers[errand.verb];
    if (answers[errand.index] !== undefined) return;
    answers[errand.index] = answer;
    this.#left -= 1;
    if (this.#left === 0) this.#finish();
  }

  /** What has no answer yet gets none. */
  end(cause: unknown = new NoAnswerInTime(this.#limitMs)): void {
    for (const errand of this.errands) this.tell(errand, errand.wasSent ? unknown(cause) : neverSent(cause));
  }

  #errand<V extends Verb>(verb: V, request: RequestOf[V], index: number): Errand<V> {
    return { call: this, verb, request, index, wasSent: false };
  }

  #finish(): void {
    this.#timer.cancel();
    this.#resolve(this.#answers as Answers);
  }
}
