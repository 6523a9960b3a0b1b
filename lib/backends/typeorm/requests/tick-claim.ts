import type { AcquireRequest, AcquireResult, TickRequest } from '../../../core/backend.js';
import { type TickState, judgeTick } from '../../../core/tick.js';
import { systemClock } from '../../../core/clock.js';
import type { Statements } from '../dialects/dialect.js';
import type { Session } from '../requests/session.js';
import {
  type LockRow,
  type LockRowSnapshot,
  isHeldBy,
  microseconds,
  tickStateFrom,
} from '../table/lock-row.js';
import type { StoreClock } from './store-clock.js';

interface TickClaimParts {
  readonly statements: Statements;
  readonly session: Session;
  readonly clock: StoreClock;
}

/** A row as {@link Statements.insertMissing} writes it. */
const INSERTED_ROW: LockRow = {
  ...{ holder: '', instance: '', fencingToken: 0n, expiresAtUs: 0, acquiredAtUs: 0 },
  ...{ tickMs: null, attempt: 0 },
};

/**
 * Claims a tick with an optimistic write: reads the row, judges the claim, and writes the row if it has not changed since.
 * Nearly all claims come too late, and those write nothing.
 */
export async function claimTick(
  { statements, session, clock }: TickClaimParts,
  request: TickRequest,
): Promise<AcquireResult | undefined> {
  const { key, holder, tick } = request;
  const sentAtMs = systemClock.monotonicMs();
  const snapshot = await statements.readRow(session, key);
  clock.update(snapshot.nowUs, sentAtMs);
  if (isHeldBy(holder, snapshot)) return grantAgain(statements, session, request, snapshot);
  const verdict = judgeTick(tick, tickStateFrom(snapshot));
  if (verdict.kind !== 'grant') return verdict;
  if (!snapshot.row) await statements.insertMissing(session, key);
  const { attempt } = verdict;
  const staleAtUs = attempt === 1 ? microseconds(tick.tickMs + tick.staleAfterMs) : Infinity;
  const notAfterUs = Math.min(clock.storeTimeAt(session.timeout.endsAtMs), staleAtUs);
  const conditions = { row: snapshot.row ?? INSERTED_ROW, attempt, notAfterUs };
  const fencingToken = await statements.claim(session, request, conditions);
  return fencingToken === undefined ? undefined : { kind: 'granted', fencingToken, attempt };
}

async function grantAgain(
  statements: Statements,
  session: Session,
  request: AcquireRequest,
  { row }: LockRowSnapshot,
): Promise<AcquireResult | undefined> {
  const [renewed] = await statements.renew(session, [request]);
  if (!row || renewed?.kind !== 'renewed') return undefined;
  return { kind: 'granted', fencingToken: row.fencingToken, attempt: row.attempt };
}

export async function readTicks(statements: Statements, session: Session, key: string): Promise<TickState> {
  return tickStateFrom(await statements.readRow(session, key));
}

/**
 * Writes the database's time as the newest claimed tick if there is none. Reads again if another process was first, or has
 * removed the free row meanwhile.
 */
export async function registerTicks(
  statements: Statements,
  session: Session,
  key: string,
): Promise<TickState> {
  const snapshot = await statements.readRow(session, key);
  const state = tickStateFrom(snapshot);
  if (state.claimed) return state;
  if (!snapshot.row) await statements.insertMissing(session, key);
  const isNew = await statements.register(session, key, Math.floor(state.nowMs));
  return isNew ? state : registerTicks(statements, session, key);
}
