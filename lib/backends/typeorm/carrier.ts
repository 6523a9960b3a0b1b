import {
  type AcquireAnswer,
  type AcquireRequest,
  type Claim,
  type ReleaseAnswer,
  type ReleaseRequest,
  neverSent,
} from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import type { AnswerOf, Errand, RequestOf, Verb } from './call.js';
import type { Dialect, Statements, Visit } from './dialect.js';
import type { LockTable } from './lock-table.js';
import { type Granting, refusal } from './seen.js';
import { type TickRequest, claimTick } from './tick-claim.js';
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
    await this.#bring('release', trip, (requests) => this.#release(visit, requests));
    await this.#bring('renew', trip, (requests) => statements.renew(visit, requests));
    await this.#bring('acquire', trip, (requests) => this.#acquire(visit, requests));
  }

  async #bring<V extends Verb>(verb: V, trip: Trip, ask: Ask<V>): Promise<void> {
    const { visit, settle } = trip;
    const all = trip.errands.filter((errand) => errand.verb === verb) as Errand<V>[];
    // Whose time ran out while the others were under way was told that he was never sent, and must not be.
    const errands = all.filter(({ call }) => !call.isOver);
    for (const errand of all) if (errand.call.isOver) settle(errand);
    if (errands.length === 0) return;
    await askTogether<Errand<V>, AnswerOf[V]>({
      dialect: this.#parts.dialect,
      deadline: visit.deadline,
      questions: errands,
      ask: async (group) => {
        visit.throwIfEnded();
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

  /** Ends of runs are few, and each is a step of its own. */
  #release(visit: Visit, requests: readonly ReleaseRequest[]): Promise<readonly ReleaseAnswer[]> {
    const { statements } = this.#parts;
    return inTwo<ReleaseRequest, Claim, ReleaseAnswer>(requests, ({ hasEnded }) => hasEnded === true, {
      some: (claim) => statements.finish(visit, claim),
      others: (claims) => statements.release(visit, claims),
    });
  }

  /** Claims of ticks are few, and each is a step of its own. */
  async #acquire(
    visit: Visit,
    requests: readonly AcquireRequest[],
  ): Promise<readonly (AcquireAnswer | typeof RACED)[]> {
    const { statements } = this.#parts;
    return inTwo<AcquireRequest, TickRequest, AcquireAnswer | typeof RACED>(requests, hasTick, {
      some: (request) => claimTick({ statements, visit, clock: this.#clock }, request),
      others: (plain) => this.#acquireMany(visit, plain),
    });
  }

  async #acquireMany(visit: Visit, requests: readonly AcquireRequest[]) {
    const notAfterUs = this.#clock.at(visit.deadline.endsAtMs);
    const sentAtMs = systemClock.monotonicMs();
    const { nowUs, each } = await this.#parts.statements.acquire(visit, requests, notAfterUs);
    this.#clock.learn(nowUs, sentAtMs);
    return requests.map((request, index) => answerFrom(request, each[index]));
  }
}

const hasTick = (request: AcquireRequest): request is TickRequest => request.tick !== undefined;

interface Ways<Request, Special, Answer> {
  some(request: Special): Promise<Answer>;
  others(requests: readonly Request[]): Promise<readonly Answer[]>;
}

/** Answers in the order of the requests: those that are special one by one, the others together. */
async function inTwo<Request, Special, Answer>(
  requests: readonly Request[],
  isSpecial: (request: Request) => boolean,
  { some, others }: Ways<Request, Special, Answer>,
): Promise<readonly Answer[]> {
  const plain = requests.filter((request) => !isSpecial(request));
  const answers = plain.length > 0 ? await others(plain) : [];
  if (plain.length === requests.length) return answers;
  const found = new Map(plain.map((request, index) => [request, answers[index]]));
  for (const request of requests) {
    if (isSpecial(request)) found.set(request, await some(request as unknown as Special));
  }
  return requests.map((request) => found.get(request) as Answer);
}

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
