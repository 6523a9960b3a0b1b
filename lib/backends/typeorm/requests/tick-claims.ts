import type { AcquireRequest, TickRequest } from '../../../core/backend.js';
import type { AcquireResult } from '../../../core/backend-results.js';
import {
  type ClaimedTick,
  PAUSED_ATTEMPT,
  type TickState,
  judgeTick,
  resumedTick,
} from '../../../core/tick.js';
import { systemClock } from '../../../core/clock.js';
import type { Statements } from '../dialects/dialect.js';
import type { Session } from '../connections/session.js';
import {
  type LockRow,
  type LockRowSnapshot,
  isHeldBy,
  microseconds,
  tickStateFrom,
} from '../table/lock-row.js';
import type { StoreClock } from './store-clock.js';
import { checkWritable } from './read-only-check.js';

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
  // A former primary. A claim that is refused writes nothing, so it would go on being refused by old rows.
  if (snapshot.isReadOnly) await checkWritable(statements, session);
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
  return { kind: 'granted', fencingToken: row.fencingToken, attempt: row.attempt % PAUSED_ATTEMPT };
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
  const isWritten = await writeTick({ statements, session, key }, snapshot, resumedTick(state));
  return isWritten ? state : registerTicks(statements, session, key);
}

/**
 * Adds the pause to the attempt of the newest tick, or ends it. Reads again if the tick has changed meanwhile. A row that has
 * that state already is written all the same: behind it, the write of an opposite call that has failed may still be pending.
 */
export async function setPaused(parts: TickWriteParts, isPaused: boolean): Promise<void> {
  const { statements, session, key, lockWaitMs = 0 } = parts;
  const snapshot = await statements.readRow(session, key);
  const { row } = snapshot;
  const isSame = (tickStateFrom(snapshot).isPaused ?? false) === isPaused;
  // A write is only sent once the row exists, so without a row none is pending.
  if (isSame && !row) return;
  if (session.timeout.leftMs <= lockWaitMs) throw session.timeout.error;
  const tick = isSame && row ? row : changedTick(tickStateFrom(snapshot), isPaused);
  if (!(await writeTick(parts, snapshot, tick))) await setPaused(parts, isPaused);
}

function changedTick(state: TickState, isPaused: boolean): ClaimedTick {
  if (!isPaused) return resumedTick(state);
  const { tickMs, attempt } = state.claimed ?? resumedTick(state);
  return { tickMs, attempt: attempt + PAUSED_ATTEMPT };
}

interface TickWriteParts {
  readonly statements: Statements;
  readonly session: Session;
  readonly key: string;
  /** Called when a write is sent. */
  readonly onSend?: () => void;
  /** Time before the timeout in which no write may begin, because it could wait for locks until after the timeout. */
  readonly lockWaitMs?: number;
}

async function writeTick(
  { statements, session, key, onSend, lockWaitMs = 0 }: TickWriteParts,
  { row = INSERTED_ROW, nowUs }: LockRowSnapshot,
  { tickMs, attempt }: Pick<LockRow, 'tickMs' | 'attempt'>,
): Promise<boolean> {
  // The database's time at the timeout, or a little earlier: its reply is some time old.
  const latestUs = nowUs + microseconds(session.timeout.leftMs - lockWaitMs);
  if (row === INSERTED_ROW) await statements.insertMissing(session, key);
  onSend?.();
  return statements.setTick(session, { key, latestUs, tickMs, attempt }, row);
}
