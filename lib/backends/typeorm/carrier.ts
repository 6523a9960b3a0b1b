import { type AcquireAnswer, type AcquireRequest, neverSent } from '../../core/backend.js';
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
    await this.#bring('release', errands, visit, (claims) => statements.release(visit, claims));
    await this.#bring('renew', errands, visit, (requests) => statements.renew(visit, requests));
    await this.#bring('acquire', errands, visit, (requests) => this.#acquire(visit, requests));
  }

  async #bring<V extends Verb>(verb: V, all: readonly Errand[], visit: Visit, ask: Ask<V>): Promise<void> {
    // Whose time ran out while the others were under way was told that he was never sent, and must not be.
    const errands = all.filter((errand) => errand.verb === verb && !errand.call.isOver) as Errand<V>[];
    if (errands.length === 0) return;
    for (const errand of errands) errand.wasSent = true;
    await askTogether<Errand<V>, AnswerOf[V]>({
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
