import {
  type AcquireAnswer,
  type AcquireRequest,
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
    const trip: Trip = { visit, settle };
    const [ends, releases] = parted(errandsOf('release', errands), hasEnded);
    const [ticks, acquisitions] = parted(errandsOf('acquire', errands), hasTick);
    await this.#bring(trip, releases, (claims) => statements.release(visit, claims));
    // Ends of runs and claims of ticks are few, and each is a step of its own: what becomes of one is none of the others' concern.
    for (const end of ends) {
      await this.#bring(trip, [end], (claims) => eachOf(claims, (claim) => statements.finish(visit, claim)));
    }
    await this.#bring(trip, errandsOf('renew', errands), (requests) => statements.renew(visit, requests));
    await this.#bring(trip, acquisitions, (requests) => this.#acquire(visit, requests));
    const parts = { statements, visit, clock: this.#clock };
    for (const tick of ticks) {
      await this.#bring(trip, [tick], (requests) =>
        eachOf(requests.filter(hasTick), (request) => claimTick(parts, request)),
      );
    }
  }

  async #bring<V extends Verb>(
    { visit, settle }: Trip,
    all: readonly Errand<V>[],
    ask: Ask<V>,
  ): Promise<void> {
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

  async #acquire(visit: Visit, requests: readonly AcquireRequest[]) {
    const { statements } = this.#parts;
    const notAfterUs = this.#clock.at(visit.deadline.endsAtMs);
    const askedAtMs = systemClock.monotonicMs();
    const { nowUs, each } = await statements.acquire(visit, requests, notAfterUs);
    if (nowUs !== undefined) this.#clock.learn(nowUs, askedAtMs);
    else if (this.#clock.isDueAt(askedAtMs)) await this.#askTheTime(visit, requests);
    return requests.map((request, index) => answerFrom(request, each[index]));
  }

  /** What is granted is granted, whatever becomes of it. */
  async #askTheTime(visit: Visit, [first]: readonly AcquireRequest[]): Promise<void> {
    const askedAtMs = systemClock.monotonicMs();
    try {
      const { nowUs } = await this.#parts.statements.look(visit, first?.key ?? '');
      this.#clock.learn(nowUs, askedAtMs);
    } catch {
      // The next acquisition asks again.
    }
  }
}

const hasEnded = ({ hasEnded }: ReleaseRequest): boolean => hasEnded === true;
const hasTick = (request: AcquireRequest): request is TickRequest => request.tick !== undefined;

function parted<V extends Verb>(errands: readonly Errand<V>[], is: (request: RequestOf[V]) => boolean) {
  return [
    errands.filter(({ request }) => is(request)),
    errands.filter(({ request }) => !is(request)),
  ] as const;
}

const errandsOf = <V extends Verb>(verb: V, errands: readonly Errand[]) =>
  errands.filter((errand): errand is Errand<V> => errand.verb === verb);

const eachOf = <Request, Answer>(requests: readonly Request[], ask: (request: Request) => Promise<Answer>) =>
  Promise.all(requests.map(ask));

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
