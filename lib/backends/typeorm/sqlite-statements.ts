import {
  type AcquireRequest,
  type Claim,
  MOST_NOTES,
  type ReleaseAnswer,
  type RenewAnswer,
  type RenewRequest,
} from '../../core/backend.js';
import { FARTHEST_US, askedOf, microseconds } from './asked.js';
import type { Statements, Table, Visit } from './dialect.js';
import { NewestTokens } from './newest-tokens.js';
import { type Granting, type Seen, refusal } from './seen.js';
import { inTransaction } from './sqlite-transaction.js';

/** As exact as SQLite's clock: to the ms. */
const NOW = `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now`;

interface Row {
  readonly holder: string | null;
  readonly instance: string;
  /** As text, because it may be any number. */
  readonly version: string;
  readonly expires_at: number;
  readonly acquired_at: number;
  readonly tick: number | null;
  readonly attempt: number | null;
  readonly waiting_until: number | null;
}

/** All steps for a list are taken in one transaction, in which nobody else writes: each may read, decide and write. */
export function on({ inSql }: Table): Statements {
  const newest = new NewestTokens();

  const read = `
SELECT holder, instance, CAST(version AS TEXT) AS version, expires_at, acquired_at, tick, attempt, waiting_until
FROM ${inSql} WHERE key = ?`;
  /*
   * In: key, holder, instance, version, how many tokens, end of the lease, time.
   * Out: one row with the version, if the key was free.
   * One step, because there is one writer at a time, and we are it.
   */
  const grant = `
INSERT INTO ${inSql} AS l (key, holder, instance, version, token_count, expires_at, acquired_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, instance = excluded.instance,
  version = max(l.version + l.token_count, excluded.version), token_count = excluded.token_count,
  expires_at = excluded.expires_at, acquired_at = excluded.acquired_at
WHERE l.expires_at <= excluded.acquired_at
RETURNING CAST(version AS TEXT) AS version`;
  const prolong = `UPDATE ${inSql} SET expires_at = ? WHERE key = ?`;
  const mark = `UPDATE ${inSql} SET waiting_until = ? WHERE key = ?`;
  // The sign of the mark tells the statement itself what was there before it, and others that nobody waits any more.
  const free = `
UPDATE ${inSql} SET holder = NULL, expires_at = 0, acquired_at = ?,
  waiting_until = CASE WHEN waiting_until > 0 THEN -waiting_until END`;
  const release = `${free} WHERE key = ? AND holder = ? AND expires_at > ? RETURNING waiting_until`;
  const forceRelease = `
${free} WHERE key = ? AND CAST(? AS INTEGER) BETWEEN version AND version + token_count - 1 AND expires_at > ?
RETURNING waiting_until`;
  // It counts also after the lease, as long as the row names the holder.
  const finish = `${free}, attempt = 0 WHERE key = ? AND holder = ? RETURNING waiting_until`;

  const plant = `
INSERT INTO ${inSql} (key, instance, version, token_count, expires_at, acquired_at) VALUES (?, '', 0, 0, 0, 0)
ON CONFLICT (key) DO NOTHING`;
  /*
   * In: holder, instance, time, how many tokens, end of the lease, time, tick ms, attempt; key; of the row as it was seen
   *   version, end, tick or NULL, attempt.
   * Out: one row with the version, if the row was still the same.
   * One step, as above.
   */
  const claim = `
UPDATE ${inSql} SET holder = ?, instance = ?, version = max(version + token_count, ?), token_count = ?,
  expires_at = ?, acquired_at = ?, tick = ?, attempt = ?
WHERE key = ? AND version = CAST(? AS INTEGER) AND expires_at = ? AND tick IS ? AND coalesce(attempt, 0) = ?
RETURNING CAST(version AS TEXT) AS version`;
  const register = `UPDATE ${inSql} SET tick = ?, attempt = 0 WHERE key = ? AND tick IS NULL RETURNING key`;
  const writeNotes = `
INSERT INTO ${inSql} (key, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (?, '', 0, 0, 0, 0, ?) ON CONFLICT (key) DO UPDATE SET notes = excluded.notes`;
  const notes = `SELECT notes FROM ${inSql} WHERE key = ?`;
  const forget = `
DELETE FROM ${inSql} WHERE key >= ? AND key < ? AND expires_at <= ?
  AND (attempt = 0 OR max(expires_at, acquired_at) <= ?)`;

  const notesOf = ({ run }: Visit, key: string) =>
    (run(notes, [key]) as [{ readonly notes: string | null }?])[0]?.notes ?? '';
  const now = ({ run }: Visit) => (run(NOW) as [{ now: number }])[0].now;
  const rowOf = ({ run }: Visit, key: string) => (run(read, [key]) as [Row?])[0];

  const tryGrant = (visit: Visit, request: AcquireRequest, nowUs: number): Granting => {
    const { key, holder } = request;
    const { instance, leaseUs, tokenCount } = askedOf(request, FARTHEST_US);
    const version = newest.after(key, nowUs);
    const values = [key, holder, instance, version, tokenCount, nowUs + leaseUs, nowUs];
    const [granted] = visit.run(grant, values) as [Pick<Row, 'version'>?];
    if (!granted) return undefined;
    newest.note(key, Number(granted.version) + tokenCount);
    return { fencingToken: BigInt(granted.version) };
  };

  const acquire = (visit: Visit, request: AcquireRequest, nowUs: number): Granting => {
    const { key, holder, leaseMs, againWithinMs } = request;
    const granted = tryGrant(visit, request, nowUs);
    if (granted) return granted;
    const row = rowOf(visit, key);
    const isHeld = row !== undefined && row.expires_at > nowUs;
    if (isHeld && row.holder === holder) {
      visit.run(prolong, [Math.max(row.expires_at, nowUs + microseconds(leaseMs)), key]);
      return { fencingToken: BigInt(row.version) };
    }
    const seen = seenFrom(nowUs, row);
    if (!refusal(request, seen)) return tryGrant(visit, request, nowUs);
    if (isHeld && againWithinMs !== undefined) {
      const againUs = microseconds(againWithinMs);
      if ((row.waiting_until ?? 0) < nowUs + againUs / 2) visit.run(mark, [nowUs + againUs, key]);
    }
    return { seen };
  };

  const renew = (visit: Visit, { key, holder, leaseMs }: RenewRequest, nowUs: number): RenewAnswer => {
    const row = rowOf(visit, key);
    if (!row || row.expires_at <= nowUs || row.holder !== holder) return { kind: 'lost' };
    visit.run(prolong, [Math.max(row.expires_at, nowUs + microseconds(leaseMs)), key]);
    return { kind: 'renewed' };
  };

  const releaseOne = (visit: Visit, { key, holder }: Claim, nowUs: number) =>
    freedBy(visit.run(release, [nowUs, key, holder, nowUs]), nowUs);

  const freedBy = (rows: unknown, nowUs: number): ReleaseAnswer => {
    const [freed] = rows as [Pick<Row, 'waiting_until'>?];
    if (!freed) return { kind: 'gone' };
    return -(freed.waiting_until ?? 0) > nowUs
      ? { kind: 'released', othersWait: true }
      : { kind: 'released' };
  };

  const inTurn = <Request, Answer>(
    visit: Visit,
    requests: readonly Request[],
    step: (visit: Visit, request: Request, nowUs: number) => Answer,
  ) =>
    inTransaction(visit, () => {
      const nowUs = now(visit);
      return { nowUs, each: requests.map((request) => step(visit, request, nowUs)) };
    });

  return {
    acquire: (visit, requests) => inTurn(visit, requests, acquire),
    renew: async (visit, requests) => (await inTurn(visit, requests, renew)).each,
    release: async (visit, claims) => (await inTurn(visit, claims, releaseOne)).each,
    forceRelease: (visit, key, fencingToken) =>
      inTransaction(visit, () => {
        const nowUs = now(visit);
        const freed = visit.run(forceRelease, [nowUs, key, String(fencingToken), nowUs]) as unknown[];
        return freed.length === 1;
      }),
    look: (visit, key) => inTransaction(visit, () => seenFrom(now(visit), rowOf(visit, key))),
    plant: (visit, key) => inTransaction(visit, () => void visit.run(plant, [key])),
    claim: (visit, request, { row, attempt, notAfterUs }) =>
      inTransaction(
        visit,
        () => {
          const { key, holder, tick } = request;
          const nowUs = now(visit);
          if (nowUs > notAfterUs) return undefined;
          const { instance, leaseUs, tokenCount } = askedOf(request, FARTHEST_US);
          const grant = [holder, instance, nowUs, tokenCount, nowUs + leaseUs, nowUs, tick?.tickMs, attempt];
          const seen = [String(row.fencingToken), row.expiresAtUs, row.tickMs, row.attempt];
          const [granted] = visit.run(claim, [...grant, key, ...seen]) as [Pick<Row, 'version'>?];
          return granted && BigInt(granted.version);
        },
        { isDurable: true },
      ),
    register: (visit, key, tickMs) =>
      inTransaction(visit, () => (visit.run(register, [tickMs, key]) as unknown[]).length === 1, {
        isDurable: true,
      }),
    finish: (visit, { key, holder }) =>
      inTransaction(
        visit,
        () => {
          const nowUs = now(visit);
          return freedBy(visit.run(finish, [nowUs, key, holder]), nowUs);
        },
        { isDurable: true },
      ),
    note: (visit, key, text) =>
      inTransaction(visit, () => {
        const lines = [text, ...notesOf(visit, key).split('\n')].slice(0, MOST_NOTES);
        visit.run(writeNotes, [key, lines.join('\n')]);
      }),
    notes: (visit, key) => inTransaction(visit, () => notesOf(visit, key)),
    forget: (visit, { fromKey, beforeKey, afterMs }) =>
      inTransaction(visit, () => {
        const nowUs = now(visit);
        return visit.run(forget, [fromKey, beforeKey, nowUs, nowUs - microseconds(afterMs)]);
      }),
  };
}

function seenFrom(nowUs: number, found: Row | undefined): Seen {
  if (!found) return { nowUs };
  const { holder, instance, version, expires_at, acquired_at, tick, attempt } = found;
  const row = { holder: holder ?? '', instance, fencingToken: BigInt(version), tickMs: tick };
  const ofTick = { attempt: attempt ?? 0 };
  return { nowUs, row: { ...row, ...ofTick, expiresAtUs: expires_at, acquiredAtUs: acquired_at } };
}
