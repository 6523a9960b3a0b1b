import type { AcquireAnswer, AcquireRequest } from '../../core/backend.js';
import { neverSent } from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import type { AnswerOf, Errand, RequestOf, Verb } from './call.js';
import type { Dialect, Statements, Visit } from './dialect.js';
import type { LockTable } from './lock-table.js';
import { type Granting, refusal } from './seen.js';
import { StoreClock } from './store-clock.js';
import { RACED, askTogether } from './together.js';

export interface CarrierParts {
  readonly dialect: Dialect;
  readonly table: LockTable;
  readonly statements: Statements;
}

type Ask<V extends Verb> = (
  requests: readonly RequestOf[V][],
) => Promise<readonly (AnswerOf[V] | typeof RACED)[]>;

/** Brings errands over one connection: releases first, then renewals, then acquisitions, each in one statement. */
export class Carrier {
  readonly #parts: CarrierParts;
  readonly #clock = new StoreClock();

  constructor(parts: CarrierParts) {
    this.#parts = parts;
  }

  /** Never rejects: what went wrong is an answer to those whom it concerns. */
  async carry(errands: readonly Errand[], visit: Visit): Promise<void> {
    const { statements, table } = this.#parts;
    try {
      if (!table.isThere) await table.look(visit);
    } catch (cause) {
      for (const errand of errands) errand.call.tell(errand, neverSent(cause));
      return;
    }
    const of = <V extends Verb>(verb: V) => errands.filter((errand) => errand.verb === verb) as Errand<V>[];
    const [release, renew, acquire] = [of('release'), of('renew'), of('acquire')];
    if (release.length > 0) await this.#bring(release, visit, (claims) => statements.release(visit, claims));
    if (renew.length > 0) await this.#bring(renew, visit, (requests) => statements.renew(visit, requests));
    if (acquire.length > 0) await this.#bring(acquire, visit, (requests) => this.#acquire(visit, requests));
  }

  #bring<V extends Verb>(errands: readonly Errand<V>[], visit: Visit, ask: Ask<V>): Promise<void> {
    for (const errand of errands) errand.wasSent = true;
    return askTogether<Errand<V>, AnswerOf[V]>({
      dialect: this.#parts.dialect,
      deadline: visit.deadline,
      questions: errands,
      ask: (group) => ask(group.map(({ request }) => request)),
      tell: (errand, answer) => {
        // Each race was lost to somebody who was granted the key.
        errand.call.tell(errand, answer === RACED ? { kind: 'taken', remainingMs: 0 } : answer);
        if (answer !== RACED && answer.kind === 'unknown') this.#parts.table.doubt(answer.cause);
      },
    });
  }

  async #acquire(
    visit: Visit,
    requests: readonly AcquireRequest[],
  ): Promise<(AcquireAnswer | typeof RACED)[]> {
    const sentAtMs = systemClock.monotonicMs();
    const notAfterUs = this.#clock.at(visit.deadline.endsAtMs);
    const { nowUs, each } = await this.#parts.statements.acquire(visit, requests, notAfterUs);
    this.#clock.learn(nowUs, sentAtMs);
    return requests.map((request, index) => answerFrom(request, each[index]));
  }
}

function answerFrom(request: AcquireRequest, granting: Granting): AcquireAnswer | typeof RACED {
  if (granting === undefined) return RACED;
  if ('fencingToken' in granting) return { kind: 'granted', fencingToken: granting.fencingToken };
  return refusal(request, granting.seen) ?? RACED;
}
