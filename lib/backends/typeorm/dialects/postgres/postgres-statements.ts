import { type AcquireRequest, MAX_HISTORY_ENTRIES } from '../../../../core/backend.js';
import { type GrantOutcome, type LockRowColumns, snapshotFrom } from '../../table/lock-row.js';
import { type RequestRow, microseconds, toRequestRow } from '../../table/request-row.js';
import type { Session, Statements, Table } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';
import { channelNameOf } from './postgres-notifications.js';
import { GRANTED_COLUMNS, ON_CONFLICT_GRANT } from './postgres-upsert.js';

const NOW = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`;

/*
 * Makes the commit of this statement's transaction wait for the disk: a grant lost in a crash would let a second holder have
 * the key. The statement sets it itself, because a pooler may reject or drop settings of the connection.
 */
const DURABLE = `set_config('synchronous_commit', 'on', true)`;
/** A release lost in a crash only delays the next holder, until the lease ends. */
const NOT_DURABLE = `set_config('synchronous_commit', 'off', true)`;

const LOCK_ROW_COLUMNS =
  'l.holder, l.instance, l.version::text, l.expires_at::text, l.acquired_at::text, l.tick::text, l.attempt::text';

/** Program limit exceeded; among others, the queue of NOTIFY is full because a listener does not read. */
const LIMIT_EXCEEDED = '54000';

interface GrantedRow {
  readonly version: string;
  readonly now: string;
}

interface ChangedRow {
  readonly key: string;
  readonly others_wait: boolean;
}

type GrantManyRow = LockRowColumns & { readonly key: string | null; readonly granted: string | null };

export function createPostgresStatements(table: Table): Statements {
  const { inSql } = table;

  /*
   * In: $1 key, $2 holder, $3 instance, $4 lease µs, $5 number of tokens, $6 latest µs to grant it.
   * Out: one row with the version and the time, if it granted a free key; otherwise no row.
   * One step, because the condition of the upsert is evaluated on the locked row. For a single request this takes half the
   * time of grantMany.
   */
  const grantOne = `
INSERT INTO ${inSql} AS l (key, holder, instance, version, token_count, expires_at, acquired_at)
SELECT $1::text, $2::text, $3::text, c.now, $5::bigint, c.now + $4::bigint, c.now
FROM (SELECT ${NOW} AS now, ${DURABLE} OFFSET 0) c
WHERE c.now <= $6::bigint AND NOT EXISTS (SELECT FROM ${inSql} s WHERE s.key = $1::text AND s.expires_at > c.now)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, instance = excluded.instance,
  version = greatest(l.version + l.token_count, excluded.version), token_count = excluded.token_count,
  expires_at = excluded.expires_at, acquired_at = excluded.acquired_at
WHERE l.expires_at <= excluded.acquired_at
RETURNING l.version::text, l.acquired_at::text AS now`;

  /*
   * In: for each request $1 key, $2 holder, $3 instance, $4 lease µs, $5 number of tokens, $6 the µs within which a refused
   *   request is repeated or NULL, $7 latest µs to grant it.
   * Out: the time; each row that was granted or marked, with its holder; each row that prevents a grant, as it was read.
   * One step: \`seen\` only saves refused requests the write; the condition of the upsert decides on the locked row.
   */
  const grantMany = `
WITH clock AS (SELECT ${NOW} AS now, ${DURABLE}),
seen AS (
  SELECT c.now, a.*, l.holder AS held_by, l.instance AS held_in, l.version, l.expires_at, l.acquired_at,
    l.tick, l.attempt,
    CASE WHEN l.expires_at > c.now THEN l.holder = a.holder ELSE c.now <= a.latest END AS may,
    CASE WHEN l.expires_at > c.now AND l.holder <> a.holder AND coalesce(l.waiting_until, 0) < c.now + a.again / 2
      AND c.now <= a.latest THEN c.now + a.again END AS mark,
    CASE WHEN c.now <= a.latest THEN a.token_count ELSE 0 END AS tokens
  FROM clock c CROSS JOIN unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
    $7::bigint[]) AS a(key, holder, instance, lease, token_count, again, latest)
  LEFT JOIN ${inSql} l ON l.key = a.key
),
granted AS (
  INSERT INTO ${inSql} AS l (${GRANTED_COLUMNS})
  SELECT s.key, s.holder, s.instance, s.now, s.tokens, s.now + s.lease, s.now, s.mark
  FROM seen s WHERE s.may OR s.mark IS NOT NULL ORDER BY s.key COLLATE "C"
  ${ON_CONFLICT_GRANT}
  RETURNING l.key, l.holder, l.version
)
SELECT NULL AS key, NULL AS granted, now::text AS store_time, NULL AS holder, NULL AS instance, NULL AS version,
  NULL AS expires_at, NULL AS acquired_at, NULL AS tick, NULL AS attempt
FROM clock
UNION ALL SELECT key, version::text, NULL, holder, NULL, NULL, NULL, NULL, NULL, NULL FROM granted
UNION ALL SELECT key, NULL, now::text, held_by, held_in, version::text, expires_at::text, acquired_at::text,
  tick::text, attempt::text
FROM seen WHERE NOT may`;

  const selectRow = `
SELECT ${NOW}::text AS store_time, ${LOCK_ROW_COLUMNS} FROM (SELECT 1) one LEFT JOIN ${inSql} l ON l.key = $1::text`;

  // The negative sign lets RETURNING show the former value, and shows other statements that there are no more waiters.
  const setReleased = `holder = NULL, expires_at = 0, acquired_at = ${NOW},
  waiting_until = CASE WHEN l.waiting_until > 0 THEN -l.waiting_until END`;
  const hasWaiters = (now: string) => `coalesce(-l.waiting_until > ${now}, false)`;
  const notify = `pg_notify('${channelNameOf(table)}', l.key)`;
  const releasedColumns = (now: string) =>
    `l.key, ${hasWaiters(now)} AS others_wait, CASE WHEN ${hasWaiters(now)} THEN ${notify} END`;
  /** A full queue of NOTIFY rolls the release back, so it is repeated without a notification: waiters also retry on their own. */
  const executeRelease = async ({ query }: Session, sql: string, parameters: readonly unknown[]) => {
    try {
      return (await query(sql, parameters)) as ChangedRow[];
    } catch (cause) {
      if (driverErrorOf(cause).code !== LIMIT_EXCEEDED) throw cause;
      return (await query(sql.replace(notify, 'NULL::text'), parameters)) as ChangedRow[];
    }
  };

  /*
   * In: for each request $1 key, $2 holder, and the other columns of \`request\`.
   * Out: the rows that changed.
   * One step, because the upsert locks the row before it evaluates the condition. It never inserts, because it selects
   * existing rows. Unlike an UPDATE it accesses them through the key, and locks them in the order of the keys.
   */
  const updateHeld = (request: string, expiresAt: string, set: string) => `
INSERT INTO ${inSql} AS l (${GRANTED_COLUMNS})
SELECT s.key, s.holder, s.instance, s.version, s.token_count, ${expiresAt}, c.now, s.waiting_until
FROM clock c CROSS JOIN ${request} CROSS JOIN LATERAL (SELECT * FROM ${inSql} l WHERE l.key = a.key OFFSET 0) s
WHERE s.holder = a.holder AND s.expires_at > c.now ORDER BY s.key
ON CONFLICT (key) DO UPDATE SET ${set}
WHERE l.holder = excluded.holder AND l.expires_at > excluded.acquired_at`;
  const renewMany = `
WITH clock AS (SELECT ${NOW} AS now, ${DURABLE})
${updateHeld(
  'unnest($1::text[], $2::text[], $3::bigint[]) AS a(key, holder, lease)',
  'c.now + a.lease',
  'expires_at = greatest(l.expires_at, excluded.expires_at)',
)}
RETURNING l.key`;
  const releaseMany = `
WITH clock AS (SELECT ${NOW} AS now, ${NOT_DURABLE})
${updateHeld('unnest($1::text[], $2::text[]) AS a(key, holder)', '0', setReleased)}
RETURNING ${releasedColumns('(SELECT now FROM clock)')}`;

  /*
   * In: $1 key, $2 holder or fencing token. Out: the key, and whether it had waiters, if it was released.
   * One step, because an UPDATE evaluates its condition again after it has waited for the row.
   */
  const releaseOneWhere = (condition: string) => `
UPDATE ${inSql} l SET ${setReleased}
WHERE l.key = $1::text AND ${condition} AND l.expires_at > ${NOW} AND ${NOT_DURABLE} = 'off'
RETURNING ${releasedColumns(NOW)}`;
  const releaseOne = releaseOneWhere('l.holder = $2::text');
  const forceRelease = releaseOneWhere('$2::bigint BETWEEN l.version AND l.version + l.token_count - 1');

  /*
   * In, out and one step: as releaseOneWhere.
   * The commit waits for the disk: if the end of a run were lost, the run would be repeated. The end counts even after the
   * lease, while the row names the holder.
   */
  const releaseEndedRun = `
UPDATE ${inSql} l SET ${setReleased}, attempt = 0
WHERE l.key = $1::text AND l.holder = $2::text AND ${DURABLE} = 'on'
RETURNING ${releasedColumns(NOW)}`;

  const insertMissing = `
INSERT INTO ${inSql} (key, instance, version, token_count, expires_at, acquired_at) VALUES ($1::text, '', 0, 0, 0, 0)
ON CONFLICT (key) DO NOTHING`;
  /*
   * In: $1 key, $2 holder, $3 instance, $4 number of tokens, $5 lease µs, $6 tick ms, $7 attempt, $8 latest µs; of the row
   *   as it was read: $9 version, $10 expires_at, $11 tick or NULL, $12 attempt.
   * Out: one row with the version, if the row had not changed and it was not too late.
   * One step, because an UPDATE evaluates its condition again after it has waited for the row.
   */
  const claim = `
UPDATE ${inSql} l SET holder = $2::text, instance = $3::text,
  version = greatest(l.version + l.token_count, c.now), token_count = $4::bigint,
  expires_at = c.now + $5::bigint, acquired_at = c.now, tick = $6::bigint, attempt = $7::bigint
FROM (SELECT ${NOW} AS now, ${DURABLE} OFFSET 0) c
WHERE l.key = $1::text AND c.now <= $8::bigint AND l.version = $9::bigint AND l.expires_at = $10::bigint
  AND l.tick IS NOT DISTINCT FROM $11::bigint AND coalesce(l.attempt, 0) = $12::bigint
RETURNING l.version::text`;
  const register = `
UPDATE ${inSql} SET tick = $2::bigint, attempt = 0
WHERE key = $1::text AND tick IS NULL AND ${DURABLE} = 'on' RETURNING key`;

  /** In: $1 key, $2 line. One step, because an upsert locks the row before it reads the lines to which it adds one. */
  const appendHistory = `
INSERT INTO ${inSql} AS l (key, instance, version, token_count, expires_at, acquired_at, notes)
VALUES ($1::text, '', 0, 0, 0, 0, $2::text)
ON CONFLICT (key) DO UPDATE
SET notes = array_to_string((string_to_array(concat_ws(chr(10), excluded.notes, l.notes), chr(10)))[1:${MAX_HISTORY_ENTRIES}], chr(10))`;
  const readHistory = `SELECT notes FROM ${inSql} WHERE key = $1::text`;
  const cleanUp = `
DELETE FROM ${inSql} WHERE key >= $1::text AND key < $2::text AND expires_at <= ${NOW}
  AND (attempt = 0 OR greatest(expires_at, acquired_at) <= ${NOW} - $3::bigint)`;

  const tryGrantOne = async ({ query }: Session, { key, holder }: AcquireRequest, request: RequestRow) => {
    const { instance, leaseUs, tokenCount, latestUs } = request;
    const [grantedRow] = (await query(grantOne, [
      key,
      holder,
      instance,
      leaseUs,
      tokenCount,
      latestUs,
    ])) as GrantedRow[];
    return (
      grantedRow && {
        nowUs: Number(grantedRow.now),
        outcomes: [{ fencingToken: BigInt(grantedRow.version) }],
      }
    );
  };

  return {
    async acquire(session, requests, notAfterUs) {
      const requestRows = requests.map((request) => toRequestRow(request, notAfterUs));
      const [first, firstRow] = [requests[0], requestRows[0]];
      if (first && firstRow && requests.length === 1) {
        const granted = await tryGrantOne(session, first, firstRow);
        if (granted) return granted;
      }
      const rows = (await session.query(grantMany, [
        textArray(requests.map(({ key }) => key)),
        textArray(requests.map(({ holder }) => holder)),
        textArray(requestRows.map(({ instance }) => instance)),
        numberArray(requestRows.map(({ leaseUs }) => leaseUs)),
        numberArray(requestRows.map(({ tokenCount }) => tokenCount)),
        numberArray(requestRows.map(({ retryWithinUs }) => retryWithinUs)),
        numberArray(requestRows.map(({ latestUs }) => latestUs)),
      ])) as [GrantManyRow, ...GrantManyRow[]];
      return grantOutcomesFrom(requests, rows);
    },
    async renew({ query }, requests) {
      const changed = (await query(renewMany, [
        textArray(requests.map(({ key }) => key)),
        textArray(requests.map(({ holder }) => holder)),
        numberArray(requests.map(({ leaseMs }) => microseconds(leaseMs))),
      ])) as ChangedRow[];
      const keys = new Set(changed.map(({ key }) => key));
      return requests.map(({ key }) => ({ kind: keys.has(key) ? 'renewed' : 'lost' }));
    },
    async release(session, claims) {
      const [first, second] = claims;
      const changed = await (first && !second
        ? executeRelease(session, releaseOne, [first.key, first.holder])
        : executeRelease(session, releaseMany, [
            textArray(claims.map(({ key }) => key)),
            textArray(claims.map(({ holder }) => holder)),
          ]));
      const hasWaitersByKey = new Map(changed.map((row) => [row.key, row.others_wait]));
      return claims.map(({ key }) => {
        const hasWaiters = hasWaitersByKey.get(key);
        if (hasWaiters === undefined) return { kind: 'gone' };
        return hasWaiters ? { kind: 'released', hasWaiters } : { kind: 'released' };
      });
    },
    async forceRelease(session, key, fencingToken) {
      return (await executeRelease(session, forceRelease, [key, String(fencingToken)])).length === 1;
    },
    async readRow({ query }, key) {
      const [row] = (await query(selectRow, [key])) as [LockRowColumns];
      return snapshotFrom(row);
    },
    async insertMissing({ query }, key) {
      await query(insertMissing, [key]);
    },
    async claim({ query }, request, { row, attempt, notAfterUs }) {
      const { key, holder, tick } = request;
      const { instance, leaseUs, tokenCount, latestUs } = toRequestRow(request, notAfterUs);
      const grant = [key, holder, instance, tokenCount, leaseUs, tick?.tickMs, attempt, latestUs];
      const expectedRow = [String(row.fencingToken), row.expiresAtUs, row.tickMs, row.attempt];
      const [granted] = (await query(claim, [...grant, ...expectedRow])) as Pick<GrantedRow, 'version'>[];
      return granted && BigInt(granted.version);
    },
    async register({ query }, key, tickMs) {
      return ((await query(register, [key, tickMs])) as unknown[]).length === 1;
    },
    async releaseEndedRun(session, { key, holder }) {
      const [released] = await executeRelease(session, releaseEndedRun, [key, holder]);
      if (!released) return { kind: 'gone' };
      return released.others_wait ? { kind: 'released', hasWaiters: true } : { kind: 'released' };
    },
    async appendHistory({ query }, key, entry) {
      await query(appendHistory, [key, entry]);
    },
    async readHistory({ query }, key) {
      const [row] = (await query(readHistory, [key])) as { readonly notes: string | null }[];
      return row?.notes ?? '';
    },
    cleanUp: ({ query }, { fromKey, beforeKey, afterMs }) =>
      query(cleanUp, [fromKey, beforeKey, microseconds(afterMs)]),
  };
}

function grantOutcomesFrom(
  requests: readonly AcquireRequest[],
  [clock, ...rows]: readonly [GrantManyRow, ...GrantManyRow[]],
) {
  const outcomes = new Map<string, GrantOutcome>();
  const holders = new Map(requests.map(({ key, holder }) => [key, holder]));
  for (const row of rows) {
    const key = String(row.key);
    if (row.granted === null) outcomes.set(key, outcomes.get(key) ?? { snapshot: snapshotFrom(row) });
    else if (row.holder === holders.get(key)) outcomes.set(key, { fencingToken: BigInt(row.granted) });
  }
  return { nowUs: Number(clock.store_time), outcomes: requests.map(({ key }) => outcomes.get(key)) };
}

/** The text form of an array of PostgreSQL. */
const textArray = (values: readonly string[]) =>
  `{${values.map((value) => `"${value.replace(/["\\]/g, '\\$&')}"`).join()}}`;

const numberArray = (values: readonly (number | null)[]) =>
  `{${values.map((value) => value ?? 'NULL').join()}}`;
