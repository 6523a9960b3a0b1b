import { randomBytes } from 'node:crypto';
import { atMost } from './at-most.js';
import { SHORTEST_PATIENCE_MS } from './asker.js';
import { type AcquireAnswer, type AcquireRequest, type Granted, unknown } from './backend.js';
import { type Clock, type Moment } from './clock.js';
import type { AcquireErrand } from './batch.js';
import { type Courier, LONGEST_LIMIT_MS } from './courier.js';
import { LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import { Grant } from './grant.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import { Underway } from './underway.js';

/** One question for a key. */
interface Question {
  /** The key as its user knows it. */
  readonly key: string;
  readonly request: AcquireRequest;
  /** How long the caller would wait for the lock, and so at least for the answer. */
  readonly waitMs: number;
}

/** Why a key was not granted. */
export type NotGranted = Exclude<AcquireAnswer, Granted>;

/** Who asked. */
export interface Hearer {
  hear(answer: Grant | NotGranted): void;
}

interface GrantsParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly courier: Courier;
  readonly giveBack: GiveBack;
}

const LIMIT_STEP_MS = 50;

/** Asks the store for a key once, and withdraws what nobody can know. */
export class Grants {
  readonly #parts: GrantsParts;
  readonly #underway = new Underway();
  readonly #session = randomBytes(12).toString('base64url');
  #acquisitions = 0;
  #isClosed = false;

  constructor(parts: GrantsParts) {
    this.#parts = parts;
  }

  /** The identity of a new acquisition. */
  newHolder(): string {
    this.#acquisitions += 1;
    return `${this.#session}:${this.#acquisitions.toString(36)}`;
  }

  ask(question: Question, hearer: Hearer): void {
    this.#send(question, (answer, sentAt) => {
      if (answer.kind === 'granted') hearer.hear(this.#granted(question, answer, sentAt));
      else {
        if (mayStillLand(answer)) this.#withdraw(question, sentAt);
        hearer.hear(this.#refused(question, answer));
      }
    });
  }

  /**
   * Asks for a tick. If the answer is lost, the claim may have used the tick up for everybody: then it is sent once more,
   * as the same run may ask for its grant again.
   */
  async claim(question: Question): Promise<Grant | NotGranted> {
    const [first, firstSentAt] = await this.#claimOnce(question);
    if (first.kind === 'granted') return this.#claimed(question, first, firstSentAt);
    if (!mayStillLand(first)) return this.#refused(question, first);
    const tookMs = this.#parts.clock.monotonicMs() - firstSentAt.monotonicMs;
    const isTooLate = isSilence(first) && tookMs >= limitOf(question) / 2;
    const [answer, sentAt] = isTooLate ? [first, firstSentAt] : await this.#claimOnce(question);
    if (answer.kind === 'granted') return this.#claimed(question, answer, sentAt);
    this.#withdraw(question, sentAt);
    return this.#refused(question, answer);
  }

  /** Waits for the answers that are still to come, but not longer than that. */
  async settled(limitMs: number): Promise<void> {
    await atMost(this.#parts.clock, limitMs, this.#underway.ended(), { awaited: true });
  }

  /** What is granted from now on lapses by itself. */
  close(): void {
    this.#isClosed = true;
  }

  #claimOnce(question: Question): Promise<[AcquireAnswer, Moment]> {
    return new Promise((resolve) => {
      this.#send(question, (answer, sentAt) => resolve([answer, sentAt]));
    });
  }

  #claimed(question: Question, answer: Granted, sentAt: Moment): Grant | NotGranted {
    const grant = this.#granted(question, answer, sentAt);
    if (grant instanceof Grant) grant.attempt = answer.attempt ?? 1;
    return grant;
  }

  #granted(question: Question, { fencingToken }: Granted, sentAt: Moment): Grant | NotGranted {
    const { key, request } = question;
    if (this.#isClosed) return unknown(new LockShutdownError('The application has ended.', { key }));
    const lastsUntilMs = lastsUntil(question, sentAt);
    return new Grant({ key, request, fencingToken, sentAt, lastsUntilMs }, this.#parts.clock);
  }

  #refused({ key, request }: Question, answer: NotGranted): NotGranted {
    if (answer.kind === 'unknown') {
      const operation = request.tick ? 'claim-tick' : 'acquire';
      this.#parts.events.emit('unavailable', { key, operation, cause: answer.cause });
    }
    return answer;
  }

  #withdraw(question: Question, sentAt: Moment): void {
    this.#parts.giveBack.abandon(question.request, lastsUntil(question, sentAt));
  }

  #send(question: Question, onAnswer: OnAnswer): void {
    this.#underway.begin();
    const { courier, giveBack } = this.#parts;
    courier.send('acquire', new Asking({ question, onAnswer, giveBack, underway: this.#underway }));
  }
}

type OnAnswer = (answer: AcquireAnswer, sentAt: Moment) => void;

interface AskingParts {
  readonly question: Question;
  readonly onAnswer: OnAnswer;
  readonly giveBack: GiveBack;
  readonly underway: Underway;
}

/** A question on its way. */
class Asking implements AcquireErrand {
  readonly request: AcquireRequest;
  readonly limitMs: number;
  readonly #question: Question;
  readonly #onAnswer: OnAnswer;
  readonly #giveBack: GiveBack;
  readonly #underway: Underway;

  constructor({ question, onAnswer, giveBack, underway }: AskingParts) {
    this.request = question.request;
    this.limitMs = limitOf(question);
    this.#question = question;
    this.#onAnswer = onAnswer;
    this.#giveBack = giveBack;
    this.#underway = underway;
  }

  hear(answer: AcquireAnswer, sentAt: Moment): void {
    this.#underway.end();
    this.#onAnswer(answer, sentAt);
  }

  hearLate(answer: AcquireAnswer, sentAt: Moment): void {
    if (answer.kind === 'granted') this.#giveBack.release(this.request, lastsUntil(this.#question, sentAt));
  }
}

/** With half of the lease gone, an answer is not worth handing out. */
const limitOf = ({ request, waitMs }: Question) =>
  Math.min(request.leaseMs / 2, LONGEST_LIMIT_MS, Math.max(SHORTEST_PATIENCE_MS, roundedUp(waitMs)));

/** So that few limits differ in a batch: each of them is looked at by itself. */
const roundedUp = (ms: number) => Math.ceil(ms / LIMIT_STEP_MS) * LIMIT_STEP_MS;

/** The monotonic time until which the request, however late it arrives, may make the lease last in the store. */
const lastsUntil = ({ request }: Question, sentAt: Moment) =>
  sentAt.monotonicMs + LONGEST_LIMIT_MS + request.leaseMs;

/** The request may have taken effect, or may yet do so. */
const mayStillLand = (answer: AcquireAnswer) => answer.kind === 'unknown' && answer.wasSent !== false;

const isSilence = (answer: AcquireAnswer) =>
  answer.kind === 'unknown' && answer.cause instanceof NoAnswerInTime;

/** Asked again, over another connection, the store may answer. */
export const isConnectionLost = (answer: Grant | NotGranted): boolean =>
  !(answer instanceof Grant) && answer.kind === 'unknown' && answer.isConnectionLost === true;
