import {
  type AcquireRequest,
  type Claim,
  MAX_HISTORY_ENTRIES,
  type ReleaseResult,
  type RenewRequest,
  type RenewResult,
} from '../../../../core/backend.js';
import { type GrantOutcome, type LockRowSnapshot, takenResultFrom } from '../../table/lock-row.js';
import { MAX_TIME_US, microseconds, toRequestRow } from '../../table/request-row.js';
import type { Session, Statements, Table } from '../dialect.js';
import { NewestTokens } from './newest-tokens.js';
import { inTransaction } from './sqlite-transaction.js';

/** In µs, but only as exact as SQLite's clock: to the ms. */
const NOW = `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now`;

interface Row {
  readonly holder: string | null;
  readonly instance: string;
  /** As text, because it may exceed the safe integers. */
  readonly version: string;
  readonly expires_at: number;
  readonly acquired_at: number;
  readonly tick: number | null;
  readonly attempt: number | null;
  readonly waiting_until: number | null;
}

/** Each list is processed in one transaction. Nothing else writes meanwhile, so each step may read, decide and write. */
export function createSqliteStatements({ inSql }: Table): Statements {
  const newestTokens = new NewestTokens();

  const read = `
SELECT holder, instance, CAST(version AS TEXT) AS version, expires_at, acquired_at, tick, attempt, waiting_until
FROM ${inSql} WHERE key = ?`;
  /*
   * In: key, holder, instance, version, number of tokens, end of the lease, time.
   * Out: one row with the version, if the key was free.
   * One step, because SQLite has one writer at a time, and this transaction is it.
   */
  const grant = `
INSERT INTO ${inSql} AS l (key, holder, instance, version, token_count, expires_at, acquired_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, instance = excluded.instance,
  version = max(l.version + l.token_count, excluded.version), token_count = excluded.token_count,
  expires_at = excluded.expires_at, acquired_at = excluded.acquired_at
WHERE l.expires_at <= excluded.acquired_at
RETURNING CAST(version AS TEXT) AS version`;
  const extendLease = `UPDATE ${inSql} SET expires_at = ? WHERE key = ?`;
  const markWaiting = `UPDATE ${inSql} SET waiting_until = ? WHERE key = ?`;
  // The negative sign lets RETURNING show the former value, and shows other statements that there are no more waiters.
  const setReleased = `
UPDATE ${inSql} SET holder = NULL, expires_at = 0, acquired_at = ?,
  waiting_until = CASE WHEN waiting_until > 0 THEN -waiting_until END`;
  const release = `${setReleased} WHERE key = ? AND holder = ? AND expires_at > ? RETURNING waiting_until`;
  const forceRelease = `
${setReleased} WHERE key = ? AND CAST(? AS INTEGER) BETWEEN version AND version + token_count - 1 AND expires_at > ?
RETURNING waiting_until`;
  // The end of a run counts even after its lease, while the row names the holder.
  const releaseEndedRun = `${setReleased}, attempt = 0 WHERE key = ? AND holder = ? RETURNING waiting_until`;

  const insertMissing = `
INSERT INTO ${inSql} (key, instance, version, token_count, expires_at, acquired_at) VALUES (?, '', 0, 0, 0, 0)
ON CONFLICT (key) DO NOTHING`;
  /*
   * In: holder, instance, time, number of tokens, end of the lease, time, tick ms, attempt; key; of the row as it was read:
   *   version, expires_at, tick or NULL, attempt.
   * Out: one row with the version, if the row had not changed.
   * One step, because this transaction is the only writer.
   */
  const claim = `
UPDATE ${inSql} SET holder = ?, instance = ?, version = max(version + token_count, ?), token_count = ?,
  expires_at = ?, acquired_at = ?, tick = ?, attempt = ?
WHERE key = ? AND version = CAST(? AS INTEGER) AND expires_at = ? AND tick IS ? AND coalesce(attempt, 0) = ?
RETURNING CAST(version AS TEXT) AS version`;
  const register = `UPDATE ${inSql} SET tick = ?, attempt = 0 WHERE key = ? AND tick IS NULL RETURNING key`;
  const writeHistory = `
INSERT INTO ${inSql} (key, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (?, '', 0, 0, 0, 0, ?) ON CONFLICT (key) DO UPDATE SET notes = excluded.notes`;
  const readHistory = `SELECT notes FROM ${inSql} WHERE key = ?`;
  const cleanUp = `
DELETE FROM ${inSql} WHERE key >= ? AND key < ? AND expires_at <= ?
  AND (attempt = 0 OR max(expires_at, acquired_at) <= ?)`;

  const historyOf = ({ run }: Session, key: string) =>
    (run(readHistory, [key]) as [{ readonly notes: string | null }?])[0]?.notes ?? '';
  const now = ({ run }: Session) => (run(NOW) as [{ now: number }])[0].now;
  const rowOf = ({ run }: Session, key: string) => (run(read, [key]) as [Row?])[0];

  const tryGrant = (session: Session, request: AcquireRequest, nowUs: number): GrantOutcome => {
    const { key, holder } = request;
    const { instance, leaseUs, tokenCount } = toRequestRow(request, MAX_TIME_US);
    const version = newestTokens.firstTokenFor(key, nowUs);
    const values = [key, holder, instance, version, tokenCount, nowUs + leaseUs, nowUs];
    const [granted] = session.run(grant, values) as [Pick<Row, 'version'>?];
    if (!granted) return undefined;
    newestTokens.record(key, Number(granted.version) + tokenCount);
    return { fencingToken: BigInt(granted.version) };
  };

  const acquire = (session: Session, request: AcquireRequest, nowUs: number): GrantOutcome => {
    const { key, holder, leaseMs, retryWithinMs } = request;
    const granted = tryGrant(session, request, nowUs);
    if (granted) return granted;
    const row = rowOf(session, key);
    const isHeld = row !== undefined && row.expires_at > nowUs;
    if (isHeld && row.holder === holder) {
      session.run(extendLease, [Math.max(row.expires_at, nowUs + microseconds(leaseMs)), key]);
      return { fencingToken: BigInt(row.version) };
    }
    const snapshot = snapshotFrom(nowUs, row);
    if (!takenResultFrom(request, snapshot)) return tryGrant(session, request, nowUs);
    if (isHeld && retryWithinMs !== undefined) {
      const retryWithinUs = microseconds(retryWithinMs);
      if ((row.waiting_until ?? 0) < nowUs + retryWithinUs / 2)
        session.run(markWaiting, [nowUs + retryWithinUs, key]);
    }
    return { snapshot };
  };

  const renew = (session: Session, { key, holder, leaseMs }: RenewRequest, nowUs: number): RenewResult => {
    const row = rowOf(session, key);
    if (!row || row.expires_at <= nowUs || row.holder !== holder) return { kind: 'lost' };
    session.run(extendLease, [Math.max(row.expires_at, nowUs + microseconds(leaseMs)), key]);
    return { kind: 'renewed' };
  };

  const releaseOne = (session: Session, { key, holder }: Claim, nowUs: number) =>
    releaseResultFrom(session.run(release, [nowUs, key, holder, nowUs]), nowUs);

  const releaseResultFrom = (rows: unknown, nowUs: number): ReleaseResult => {
    const [released] = rows as [Pick<Row, 'waiting_until'>?];
    if (!released) return { kind: 'gone' };
    return -(released.waiting_until ?? 0) > nowUs
      ? { kind: 'released', hasWaiters: true }
      : { kind: 'released' };
  };

  const inOneTransaction = <Request, Result>(
    session: Session,
    requests: readonly Request[],
    step: (session: Session, request: Request, nowUs: number) => Result,
  ) =>
    inTransaction(session, () => {
      const nowUs = now(session);
      return { nowUs, outcomes: requests.map((request) => step(session, request, nowUs)) };
    });

  return {
    acquire: (session, requests) => inOneTransaction(session, requests, acquire),
    renew: async (session, requests) => (await inOneTransaction(session, requests, renew)).outcomes,
    release: async (session, claims) => (await inOneTransaction(session, claims, releaseOne)).outcomes,
    forceRelease: (session, key, fencingToken) =>
      inTransaction(session, () => {
        const nowUs = now(session);
        const released = session.run(forceRelease, [nowUs, key, String(fencingToken), nowUs]) as unknown[];
        return released.length === 1;
      }),
    readRow: (session, key) => inTransaction(session, () => snapshotFrom(now(session), rowOf(session, key))),
    insertMissing: (session, key) => inTransaction(session, () => void session.run(insertMissing, [key])),
    claim: (session, request, { row, attempt, notAfterUs }) =>
      inTransaction(
        session,
        () => {
          const { key, holder, tick } = request;
          const nowUs = now(session);
          if (nowUs > notAfterUs) return undefined;
          const { instance, leaseUs, tokenCount } = toRequestRow(request, MAX_TIME_US);
          const grant = [holder, instance, nowUs, tokenCount, nowUs + leaseUs, nowUs, tick?.tickMs, attempt];
          const expectedRow = [String(row.fencingToken), row.expiresAtUs, row.tickMs, row.attempt];
          const [granted] = session.run(claim, [...grant, key, ...expectedRow]) as [Pick<Row, 'version'>?];
          return granted && BigInt(granted.version);
        },
        { isDurable: true },
      ),
    register: (session, key, tickMs) =>
      inTransaction(session, () => (session.run(register, [tickMs, key]) as unknown[]).length === 1, {
        isDurable: true,
      }),
    releaseEndedRun: (session, { key, holder }) =>
      inTransaction(
        session,
        () => {
          const nowUs = now(session);
          return releaseResultFrom(session.run(releaseEndedRun, [nowUs, key, holder]), nowUs);
        },
        { isDurable: true },
      ),
    appendHistory: (session, key, entry) =>
      inTransaction(session, () => {
        const entries = [entry, ...historyOf(session, key).split('\n')].slice(0, MAX_HISTORY_ENTRIES);
        session.run(writeHistory, [key, entries.join('\n')]);
      }),
    readHistory: (session, key) => inTransaction(session, () => historyOf(session, key)),
    cleanUp: (session, { fromKey, beforeKey, afterMs }) =>
      inTransaction(session, () => {
        const nowUs = now(session);
        return session.run(cleanUp, [fromKey, beforeKey, nowUs, nowUs - microseconds(afterMs)]);
      }),
  };
}

function snapshotFrom(nowUs: number, found: Row | undefined): LockRowSnapshot {
  if (!found) return { nowUs };
  const { holder, instance, version, expires_at, acquired_at, tick, attempt } = found;
  const row = { holder: holder ?? '', instance, fencingToken: BigInt(version), tickMs: tick };
  const ofTick = { attempt: attempt ?? 0 };
  return { nowUs, row: { ...row, ...ofTick, expiresAtUs: expires_at, acquiredAtUs: acquired_at } };
}
