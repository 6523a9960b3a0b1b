import type { AcquireRequest, ReleaseAnswer } from '../../core/backend.js';
import { FARTHEST_US, askedOf, microseconds } from './asked.js';
import type { Statements, Table, Visit } from './dialect.js';
import { NewestTokens } from './newest-tokens.js';
import { type Granting, type Seen, refusal } from './seen.js';
import { inTransaction, whenNotBusy } from './sqlite-transaction.js';

/** As exact as SQLite's clock, which is the same everywhere in one statement: to the ms. */
const NOW = `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`;

interface Row {
  readonly now: number;
  readonly holder: string | null;
  readonly instance: string | null;
  readonly version: string | null;
  readonly expires_at: number;
  readonly acquired_at: number;
  readonly tick: number | null;
  readonly waiting_until: number | null;
}

interface FreedRow {
  readonly others_wait: number;
}

/** All steps of a list are taken in one transaction, so nothing comes between two statements. */
export function on({ inSql }: Table): Statements {
  const newest = new NewestTokens();

  const look = `
SELECT ${NOW} AS now, l.holder, l.instance, CAST(l.version AS TEXT) AS version, l.expires_at, l.acquired_at, l.tick,
  l.waiting_until
FROM (SELECT 1) LEFT JOIN ${inSql} l ON l.key = ?`;
  /** In: key, holder, instance, version, how many tokens, end, time, tick or NULL. Out: the version. */
  const grant = `
INSERT INTO ${inSql} AS l (key, holder, instance, version, token_count, expires_at, acquired_at, tick)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
  holder = excluded.holder,
  instance = excluded.instance,
  version = max(l.version + l.token_count, excluded.version),
  token_count = excluded.token_count,
  expires_at = excluded.expires_at,
  acquired_at = excluded.acquired_at,
  tick = coalesce(excluded.tick, l.tick)
RETURNING CAST(version AS TEXT) AS version`;
  const prolong = `UPDATE ${inSql} SET expires_at = ? WHERE key = ?`;
  const mark = `UPDATE ${inSql} SET waiting_until = ? WHERE key = ?`;

  const held = `key = ? AND holder = ? AND expires_at > ${NOW}`;
  const renew = `UPDATE ${inSql} SET expires_at = max(expires_at, ${NOW} + ?) WHERE ${held}`;
  // The sign of the mark tells the statement itself what was there before it, and others that nobody waits any more.
  const free = `
UPDATE ${inSql} SET holder = NULL, expires_at = 0,
  waiting_until = CASE WHEN waiting_until > 0 THEN -waiting_until END`;
  const othersWait = `RETURNING coalesce(-waiting_until > ${NOW}, 0) AS others_wait`;
  const release = `${free} WHERE ${held} ${othersWait}`;
  const forceRelease = `
${free} WHERE key = ? AND CAST(? AS INTEGER) BETWEEN version AND version + token_count - 1 AND expires_at > ${NOW}
${othersWait}`;

  const rowOf = ({ run }: Visit, key: string) => (run(look, [key]) as [Row])[0];

  const acquireOne = (visit: Visit, request: AcquireRequest): Granting => {
    const { key, holder } = request;
    const row = rowOf(visit, key);
    const { now } = row;
    const { instance, leaseUs, tokenCount, againUs, tickMs } = askedOf(request, FARTHEST_US);
    if (row.version !== null && row.expires_at > now && row.holder === holder) {
      visit.run(prolong, [now + leaseUs, key]);
      return { fencingToken: BigInt(row.version) };
    }
    const seen = seenFrom(row);
    if (refusal(request, seen)) {
      const isTaken = row.expires_at > now;
      if (isTaken && againUs !== null && (row.waiting_until ?? 0) < now + againUs / 2) {
        visit.run(mark, [now + againUs, key]);
      }
      return { seen };
    }
    const version = newest.after(key, now);
    const values = [key, holder, instance, version, tokenCount, now + leaseUs, now, tickMs];
    const [granted] = visit.run(grant, values) as [{ version: string }];
    newest.note(key, Number(granted.version) + tokenCount);
    return { fencingToken: BigInt(granted.version) };
  };

  return {
    acquire: (visit, requests) =>
      inTransaction(visit, () => ({ each: requests.map((request) => acquireOne(visit, request)) })),
    renew: (visit, requests) =>
      inTransaction(visit, () =>
        requests.map(
          ({ key, holder, leaseMs }) => visit.run(renew, [microseconds(leaseMs), key, holder]) === 1,
        ),
      ),
    release: (visit, claims) =>
      inTransaction(visit, () =>
        claims.map(({ key, holder }) => releaseAnswer(visit.run(release, [key, holder]) as FreedRow[])),
      ),
    forceRelease: (visit, key, fencingToken) =>
      inTransaction(
        visit,
        () => (visit.run(forceRelease, [key, String(fencingToken)]) as FreedRow[]).length === 1,
      ),
    look: async (visit, key) => seenFrom(await whenNotBusy(visit, () => rowOf(visit, key))),
  };
}

function seenFrom({ now, holder, instance, version, expires_at, acquired_at, tick }: Row): Seen {
  if (version === null) return { nowUs: now };
  const row = { holder: holder ?? '', instance: instance ?? '', fencingToken: BigInt(version), tickMs: tick };
  return { nowUs: now, row: { ...row, expiresAtUs: expires_at, acquiredAtUs: acquired_at } };
}

function releaseAnswer([freed]: readonly FreedRow[]): ReleaseAnswer {
  if (!freed) return { kind: 'gone' };
  return freed.others_wait === 1 ? { kind: 'released', othersWait: true } : { kind: 'released' };
}
