import type { AcquireAnswer, AcquireRequest, TickRequest } from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import { microseconds } from './asked.js';
import type { Statements, Visit } from './dialect.js';
import { type Seen, type SeenRow, isHeldBy, verdictOf } from './seen.js';
import type { StoreClock } from './store-clock.js';
import { RACED } from './together.js';

interface ClaimParts {
  readonly statements: Statements;
  readonly visit: Visit;
  readonly clock: StoreClock;
}

/** A row that was just planted. */
const BLANK: SeenRow = {
  ...{ holder: '', instance: '', fencingToken: 0n, expiresAtUs: 0, acquiredAtUs: 0 },
  ...{ tickMs: null, attempt: 0 },
};

/**
 * Claims a tick by optimistic version: the row is read, judged, and written if it is still the same. Of those who come too
 * late, which are nearly all, none writes.
 */
export async function claimTick(
  { statements, visit, clock }: ClaimParts,
  request: TickRequest,
): Promise<AcquireAnswer | typeof RACED> {
  const { key, holder, tick } = request;
  const sentAtMs = systemClock.monotonicMs();
  const seen = await statements.look(visit, key);
  clock.learn(seen.nowUs, sentAtMs);
  if (isHeldBy(holder, seen)) return holdOn(statements, visit, request, seen);
  const verdict = verdictOf(tick, seen);
  if (verdict.kind !== 'grant' && verdict.kind !== 'register') return verdict;
  if (!seen.row) await statements.plant(visit, key);
  if (verdict.kind === 'register') {
    const { aheadMs } = verdict;
    const isNew = await statements.register(visit, key, Math.floor(seen.nowUs / 1_000));
    return isNew ? { kind: 'refused', reason: 'registered', aheadMs } : RACED;
  }
  const { attempt } = verdict;
  const staleAtUs = attempt === 1 ? microseconds(tick.tickMs + tick.staleAfterMs) : Infinity;
  const notAfterUs = Math.min(clock.at(visit.deadline.endsAtMs), staleAtUs);
  const terms = { row: seen.row ?? BLANK, attempt, notAfterUs };
  const fencingToken = await statements.claim(visit, request, terms);
  return fencingToken === undefined ? RACED : { kind: 'granted', fencingToken, attempt };
}

async function holdOn(
  statements: Statements,
  visit: Visit,
  request: AcquireRequest,
  { row }: Seen,
): Promise<AcquireAnswer | typeof RACED> {
  const [renewed] = await statements.renew(visit, [request]);
  if (!row || renewed?.kind !== 'renewed') return RACED;
  return { kind: 'granted', fencingToken: row.fencingToken, attempt: row.attempt };
}
