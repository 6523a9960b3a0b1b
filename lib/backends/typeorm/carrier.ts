import {
  type AcquireAnswer,
  type AcquireRequest,
  type ReleaseAnswer,
  type ReleaseRequest,
  type TickRequest,
  neverSent,
} from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import type { AnswerOf, Errand, RequestOf, Verb } from './call.js';
import type { Dialect, Statements, Visit } from './dialect.js';
import type { LockTable } from './lock-table.js';
import { type Granting, refusal } from './seen.js';
import { claimTick } from './tick-claim.js';
import { StoreClock } from './store-clock.js';
import { RACED, askTogether } from './together.js';

interface CarrierParts {
  readonly dialect: Dialect;
  readonly table: LockTable;
  readonly statements: Statements;
}

type Ask<V extends Verb> = (
  requests: readonly RequestOf[V][],
) => Promise<readonly (AnswerOf[V] | typeof RACED)[]>;

interface Trip {
  readonly errands: readonly Errand[];
  readonly visit: Visit;
  settle(errand: Errand): void;
  /** It was granted by an answer that did not tell the time. */
  untimedKey?: string | undefined;
}

/** Brings errands over one connection: releases first, then renewals, then acquisitions, each in one statement. */
export class Carrier {
  readonly #parts: CarrierParts;
  readonly #clock = new StoreClock();

  constructor(parts: CarrierParts) {
    this.#parts = parts;
  }

  /** Never rejects: what went wrong is an answer to those whom it concerns. `settle` is for each that was answered. */
  async carry(
    errands: readonly Errand[],
    visit: Visit,
    settle: (errand: Errand) => void = () => undefined,
  ): Promise<void> {
    const { statements, table } = this.#parts;
    try {
      if (!table.isThere) await table.look(visit);
    } catch (cause) {
      for (const errand of errands) errand.call.tell(errand, neverSent(cause));
      return;
    }
    const trip: Trip = { errands, visit, settle };
    await this.#bring('release', trip, (claims) => this.#release(visit, claims), isEnd);
    await this.#bring('renew', trip, (requests) => statements.renew(visit, requests));
    await this.#bring('acquire', trip, (requests) => this.#acquire(trip, requests), hasTick);
    if (trip.untimedKey !== undefined) await this.#askTheTime(visit, trip.untimedKey);
  }

  /** Who is alone is asked in a statement of his own. */
  async #bring<V extends Verb>(
    verb: V,
    { errands: all, visit, settle }: Trip,
    ask: Ask<V>,
    isAlone: (request: RequestOf[V]) => boolean = () => false,
  ): Promise<void> {
    const ofVerb = all.filter((errand): errand is Errand<V> => errand.verb === verb);
    // Whose time ran out while the others were under way was told that he was never sent, and must not be.
    const errands = ofVerb.filter(({ call }) => !call.isOver);
    for (const errand of ofVerb) if (errand.call.isOver) settle(errand);
    if (errands.length === 0) return;
    const together = errands.filter(({ request }) => !isAlone(request));
    const alone = errands.filter(({ request }) => isAlone(request)).map((errand) => [errand]);
    await askTogether<Errand<V>, AnswerOf[V]>({
      dialect: this.#parts.dialect,
      deadline: visit.deadline,
      groups: together.length > 0 ? [together, ...alone] : alone,
      ask: async (group) => {
        visit.throwIfEnded();
        if (group.every(isTooLate)) throw new Error('the time ran out while others were under way');
        for (const errand of group) errand.wasSent = true;
        return await ask(group.map(({ request }) => request));
      },
      tell: (errand, answer) => {
        errand.call.tell(errand, whole(errand, answer));
        if (answer !== RACED && answer.kind === 'unknown') this.#parts.table.doubt(answer.cause);
        settle(errand);
      },
    });
  }

  #release(visit: Visit, claims: readonly ReleaseRequest[]): Promise<readonly ReleaseAnswer[]> {
    const { statements } = this.#parts;
    const ends = claims.filter(isEnd);
    return ends.length > 0
      ? Promise.all(ends.map((end) => statements.finish(visit, end)))
      : statements.release(visit, claims);
  }

  async #acquire(
    trip: Trip,
    requests: readonly AcquireRequest[],
  ): Promise<readonly (AcquireAnswer | typeof RACED)[]> {
    const { statements } = this.#parts;
    const { visit } = trip;
    const ticks = requests.filter(hasTick);
    if (ticks.length > 0) {
      return Promise.all(ticks.map((tick) => claimTick({ statements, visit, clock: this.#clock }, tick)));
    }
    const notAfterUs = this.#clock.at(visit.deadline.endsAtMs);
    const askedAtMs = systemClock.monotonicMs();
    const { nowUs, each } = await statements.acquire(visit, requests, notAfterUs);
    if (nowUs === undefined) trip.untimedKey = requests[0]?.key;
    else this.#clock.learn(nowUs, askedAtMs);
    return requests.map((request, index) => answerFrom(request, each[index]));
  }

  /** If nobody answers, the next grant without the time asks again. */
  async #askTheTime(visit: Visit, key: string): Promise<void> {
    const askedAtMs = systemClock.monotonicMs();
    if (!this.#clock.isDueAt(askedAtMs)) return;
    await this.#parts.statements.look(visit, key).then(
      ({ nowUs }) => this.#clock.learn(nowUs, askedAtMs),
      () => undefined,
    );
  }
}

const isEnd = ({ hasEnded }: ReleaseRequest): boolean => hasEnded === true;

const hasTick = (request: AcquireRequest): request is TickRequest => request.tick !== undefined;

/** Its asker was told that it was never sent. */
const isTooLate = ({ call, wasSent }: Errand): boolean => call.isOver && !wasSent;

function whole<V extends Verb>({ wasSent }: Errand<V>, answer: AnswerOf[V] | typeof RACED): AnswerOf[Verb] {
  // Each race was lost to somebody who was granted the key.
  if (answer === RACED) return { kind: 'taken', remainingMs: 0 };
  return answer.kind === 'unknown' && !wasSent ? neverSent(answer.cause) : answer;
}

function answerFrom(request: AcquireRequest, granting: Granting): AcquireAnswer | typeof RACED {
  if (granting === undefined) return RACED;
  if ('fencingToken' in granting) return { kind: 'granted', fencingToken: granting.fencingToken };
  return refusal(request, granting.seen) ?? RACED;
}
