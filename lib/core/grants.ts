import { randomBytes } from 'node:crypto';
import { atMost } from './at-most.js';
import { type AcquireAnswer, type Granted, type TickClaim, unknown } from './backend.js';
import type { Delivered } from './batch.js';
import type { Clock } from './clock.js';
import type { Courier } from './courier.js';
import { LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import { Grant } from './grant.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import { Underway } from './underway.js';

/** One question for a key. */
export interface Attempt {
  /** The key as its user knows it. */
  readonly key: string;
  readonly storeKey: string;
  readonly holder: string;
  readonly leaseMs: number;
  /** How long the caller would wait for the lock, and so at least for the answer. */
  readonly waitMs: number;
  /** @default 1 */
  readonly tokenCount?: number;
  /** See `AcquireRequest`. */
  readonly againWithinMs?: number;
  readonly tick?: TickClaim;
}

/** Why a key was not granted. */
export type NotGranted = Exclude<AcquireAnswer, Granted>;

interface GrantsParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly courier: Courier;
  readonly giveBack: GiveBack;
  readonly instance: string;
}

/** Nobody should wait longer for a store's answer, however long the lease. */
const LONGEST_ANSWER_MS = 5_000;
/** Even who does not wait for the lock waits so long for the answer. */
const SHORTEST_PATIENCE_MS = 1_000;

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

  async ask(attempt: Attempt): Promise<Grant | NotGranted> {
    this.#underway.begin();
    try {
      const delivered = await this.#send(attempt);
      const { answer } = delivered;
      return answer.kind === 'granted'
        ? this.#granted(attempt, answer, delivered)
        : await this.#refused(attempt, answer, delivered);
    } finally {
      this.#underway.end();
    }
  }

  /** Waits for the answers that are still to come, but not longer than that. */
  async settled(limitMs: number): Promise<void> {
    await atMost(this.#parts.clock, limitMs, this.#underway.ended(), { awaited: true });
  }

  /** What is granted from now on lapses by itself. */
  close(): void {
    this.#isClosed = true;
  }

  #granted(
    { key, storeKey, holder, leaseMs, tokenCount = 1, waitMs }: Attempt,
    { fencingToken }: Granted,
    { sentAt }: Delivered<unknown>,
  ): Grant | NotGranted {
    if (this.#isClosed) return unknown(new LockShutdownError('The application has ended.', { key }));
    const lastsUntilMs = sentAt.monotonicMs + limitOf({ leaseMs, waitMs }) + leaseMs;
    const claim = { key: storeKey, holder };
    return new Grant(
      { key, claim, fencingToken, tokenCount, leaseMs, sentAt, lastsUntilMs },
      this.#parts.clock,
    );
  }

  async #refused(
    attempt: Attempt,
    first: NotGranted,
    { sentAt }: Delivered<unknown>,
  ): Promise<Grant | NotGranted> {
    const { events, giveBack } = this.#parts;
    const { key, storeKey, holder, tick } = attempt;
    let answer = first;
    let lastSentAt = sentAt;
    let mayHaveLanded = mayStillLand(first);
    // A claim whose answer was lost may have used the tick up for everybody: the same run may ask for its grant again.
    if (tick && mayHaveLanded && !isSilence(first)) {
      const again = await this.#send(attempt);
      if (again.answer.kind === 'granted') return this.#granted(attempt, again.answer, again);
      answer = again.answer;
      lastSentAt = again.sentAt;
      mayHaveLanded ||= mayStillLand(answer);
    }
    if (mayHaveLanded) {
      const untilMs = lastSentAt.monotonicMs + limitOf(attempt) + attempt.leaseMs;
      void giveBack.abandon({ key: storeKey, holder }, untilMs);
    }
    if (answer.kind === 'unknown') {
      events.emit('unavailable', { key, operation: tick ? 'claim-tick' : 'acquire', cause: answer.cause });
    }
    return answer;
  }

  #send(attempt: Attempt): Promise<Delivered<AcquireAnswer>> {
    const { courier, giveBack, instance } = this.#parts;
    const { storeKey: key, holder, leaseMs, tokenCount, againWithinMs, tick } = attempt;
    const limitMs = limitOf(attempt);
    const onLate = ({ answer, sentAt }: Delivered<AcquireAnswer>) => {
      if (answer.kind !== 'granted') return;
      void giveBack.release({ key, holder }, sentAt.monotonicMs + limitMs + leaseMs);
    };
    return courier.acquire(
      {
        key,
        holder,
        leaseMs,
        instance,
        ...(tokenCount && { tokenCount }),
        ...(againWithinMs && { againWithinMs }),
        ...(tick && { tick }),
      },
      { limitMs, onLate },
    );
  }
}

/** With half of the lease gone, an answer is not worth handing out. */
const limitOf = ({ leaseMs, waitMs }: Pick<Attempt, 'leaseMs' | 'waitMs'>) =>
  Math.min(leaseMs / 2, LONGEST_ANSWER_MS, Math.max(SHORTEST_PATIENCE_MS, waitMs));

/** The request may have taken effect, or may yet do so. */
const mayStillLand = (answer: AcquireAnswer) => answer.kind === 'unknown' && answer.wasSent !== false;

const isSilence = (answer: AcquireAnswer) =>
  answer.kind === 'unknown' && answer.cause instanceof NoAnswerInTime;
