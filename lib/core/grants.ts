import { randomBytes } from 'node:crypto';
import { atMost } from './at-most.js';
import { type AcquireAnswer, type Granted, type TickClaim, unknown } from './backend.js';
import { type Clock, momentOf } from './clock.js';
import type { Courier } from './courier.js';
import { LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import type { Holdings } from './holdings.js';
import type { Lease } from './lease.js';
import { NoAnswerInTime } from './no-answer-in-time.js';

/** One question for a key. */
export interface Attempt {
  /** The key as its user knows it. */
  readonly key: string;
  readonly storeKey: string;
  readonly holder: string;
  readonly leaseMs: number;
  readonly renew: boolean;
  /** How long the caller would wait for the lock, and so at least for the answer. */
  readonly waitMs: number;
  readonly tick?: TickClaim;
}

/** Why a key was not granted. */
export type NotGranted = Exclude<AcquireAnswer, Granted>;

interface GrantsParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly courier: Courier;
  readonly giveBack: GiveBack;
  readonly holdings: Holdings;
  readonly instance: string;
}

/** Nobody should wait longer for a store's answer, however long the lease. */
const LONGEST_ANSWER_MS = 5_000;
/** Even who does not wait for the lock waits so long for the answer. */
const SHORTEST_PATIENCE_MS = 1_000;

/** Asks the store for a key once, keeps what is granted, and withdraws what nobody can know. */
export class Grants {
  readonly #parts: GrantsParts;
  readonly #underway = new Set<Promise<unknown>>();
  readonly #session = randomBytes(12).toString('base64url');
  #acquisitions = 0;

  constructor(parts: GrantsParts) {
    this.#parts = parts;
  }

  /** The identity of a new acquisition. */
  newHolder(): string {
    this.#acquisitions += 1;
    return `${this.#session}:${this.#acquisitions.toString(36)}`;
  }

  ask(attempt: Attempt): Promise<Lease | NotGranted> {
    const answer = this.#ask(attempt).finally(() => this.#underway.delete(answer));
    this.#underway.add(answer);
    return answer;
  }

  /** Waits for the answers that are still to come, but not longer than that. */
  async settled(limitMs: number): Promise<void> {
    await atMost(this.#parts.clock, limitMs, Promise.all(this.#underway), { awaited: true });
  }

  async #ask(attempt: Attempt): Promise<Lease | NotGranted> {
    const { events, giveBack, holdings } = this.#parts;
    const { key, tick, renew } = attempt;
    let { answer, grant } = await this.#send(attempt);
    let mayHaveLanded = mayStillLand(answer);
    // A claim whose answer was lost may have used the tick up for everybody: the same run may ask for its grant again.
    if (tick && mayHaveLanded && !isSilence(answer)) {
      ({ answer, grant } = await this.#send(attempt));
      mayHaveLanded ||= mayStillLand(answer);
    }
    if (answer.kind === 'granted') {
      if (holdings.isClosed) return unknown(new LockShutdownError('The application has ended.', { key }));
      return holdings.take({ ...grant, fencingToken: answer.fencingToken }, renew);
    }
    if (mayHaveLanded) void giveBack.abandon(grant.claim, grant.lastsUntilMs);
    if (answer.kind === 'unknown') {
      events.emit('unavailable', { key, operation: tick ? 'claim-tick' : 'acquire', cause: answer.cause });
    }
    return answer;
  }

  async #send({ key, storeKey, holder, leaseMs, waitMs, tick }: Attempt) {
    const { clock, courier, giveBack, instance } = this.#parts;
    // With half of the lease gone, an answer is not worth handing out.
    const limitMs = Math.min(leaseMs / 2, LONGEST_ANSWER_MS, Math.max(SHORTEST_PATIENCE_MS, waitMs));
    const claim = { key: storeKey, holder };
    const sentAt = momentOf(clock);
    const lastsUntilMs = sentAt.monotonicMs + limitMs + leaseMs;
    const onLate = (late: AcquireAnswer) => {
      if (late.kind === 'granted') void giveBack.release(claim, lastsUntilMs);
    };
    const request = { ...claim, leaseMs, instance, ...(tick && { tick }) };
    const answer = await courier.acquire(request, { limitMs, onLate });
    return { answer, grant: { key, claim, leaseMs, sentAt, lastsUntilMs } };
  }
}

/** The request may have taken effect, or may yet do so. */
const mayStillLand = (answer: AcquireAnswer) => answer.kind === 'unknown' && answer.wasSent !== false;

const isSilence = (answer: AcquireAnswer) =>
  answer.kind === 'unknown' && answer.cause instanceof NoAnswerInTime;
