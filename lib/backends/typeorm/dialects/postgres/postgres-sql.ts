import { MAX_HISTORY_ENTRIES } from '../../../../core/backend.js';
import { PAUSED_ATTEMPT } from '../../../../core/tick.js';
import { ROWS_PER_PAGE } from '../../statements/scan-statements.js';

const NOW = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`;

/*
 * Settings of the statement's own transaction. The statement sets them itself, because a pooler may reject or drop settings of
 * the connection. They are evaluated before the first row is locked.
 */

/** One locked row must not keep the others of its batch waiting. It is not empty, so that a condition can contain it. */
const LOCK_TIMEOUT = `set_config('lock_timeout', '1s', true)`;
/*
 * Makes the commit of this statement's transaction wait for the disk: a grant lost in a crash would let a second holder have
 * the key.
 */
const DURABLE = `concat(set_config('synchronous_commit', 'on', true), ${LOCK_TIMEOUT})`;
/** A release lost in a crash only delays the next holder, until the lease ends. */
const NOT_DURABLE = `concat(set_config('synchronous_commit', 'off', true), ${LOCK_TIMEOUT})`;

/** The columns that a grant writes. */
const GRANTED_COLUMNS = 'key, holder, instance, version, token_count, expires_at, acquired_at, waiting_until';

const isHeld = 'l.expires_at > excluded.acquired_at';
const mayBeGranted = `(
    (l.holder = excluded.holder AND ${isHeld}) OR (NOT ${isHeld} AND excluded.token_count > 0))`;
const ifGranted = (then: string, otherwise: string) =>
  `CASE WHEN ${mayBeGranted} THEN ${then} ELSE ${otherwise} END`;
const ifHeld = (then: string, otherwise: string) => `CASE WHEN ${isHeld} THEN ${then} ELSE ${otherwise} END`;

/*
 * The conflict clause of a grant whose row exists already.
 *
 * In: `l`, the row; `excluded`, the row that a first grant would insert. Its `version` and `acquired_at` are the database's
 *   time. Its `waiting_until` is set if a refused requester waits: until then it wants to be notified. Its `token_count` is 0
 *   if the request came too late: it may then only extend a lease that its holder still has when the row is locked.
 * Out: a free row is granted; the lease of the same holder is extended; a row of another holder is only marked, if the
 *   requester waits; any other row is unchanged.
 * One step, because the row is locked before the condition is evaluated, and stays locked until it is written.
 */
const ON_CONFLICT_GRANT = `
  ON CONFLICT (key) DO UPDATE SET
    holder = ${ifGranted('excluded.holder', 'l.holder')},
    instance = ${ifGranted('excluded.instance', 'l.instance')},
    expires_at = ${ifGranted('greatest(l.expires_at, excluded.expires_at)', 'l.expires_at')},
    version = ${ifHeld(
      'l.version',
      'CASE WHEN l.version + l.token_count > excluded.version THEN l.version + l.token_count ELSE excluded.version END',
    )},
    token_count = ${ifHeld('l.token_count', 'excluded.token_count')},
    acquired_at = ${ifHeld('l.acquired_at', 'excluded.acquired_at')},
    waiting_until = ${ifGranted('l.waiting_until', 'greatest(l.waiting_until, excluded.waiting_until)')}
  WHERE ${mayBeGranted} OR (${isHeld} AND excluded.waiting_until IS NOT NULL)`;

/*
 * In: `request`, the table of the requests, with key and holder. Out: the rows that changed.
 * One step, because the upsert locks the row before it evaluates the condition. It selects existing rows. Should one be
 * removed before it is locked, `expiresAt` must make the inserted row a free one. Unlike an UPDATE it accesses the rows
 * through the key, and locks them in the order of the keys.
 */
const updateHeld = (request: string, expiresAt: string, set: string) => `
INSERT INTO :table AS l (${GRANTED_COLUMNS})
SELECT s.key, s.holder, s.instance, s.version, s.token_count, ${expiresAt}, c.now, s.waiting_until
FROM clock c CROSS JOIN ${request} CROSS JOIN LATERAL (SELECT * FROM :table l WHERE l.key = a.key OFFSET 0) s
WHERE s.holder = a.holder AND s.expires_at > c.now ORDER BY s.key
ON CONFLICT (key) DO UPDATE SET ${set}
WHERE l.holder = excluded.holder AND l.expires_at > excluded.acquired_at`;

// The negative sign lets RETURNING show the former value, and shows other statements that there are no more waiters.
const SET_RELEASED = `holder = NULL, expires_at = 0, acquired_at = ${NOW},
  waiting_until = CASE WHEN l.waiting_until > 0 THEN -l.waiting_until END`;

/** Sends a released key to those who wait for it. */
export const NOTIFY = 'pg_notify(:channel, l.key)';

function returningReleased(now: string) {
  const hasWaiters = `coalesce(-l.waiting_until > ${now}, false)`;
  return `RETURNING l.key, ${hasWaiters} AS others_wait, CASE WHEN ${hasWaiters} THEN ${NOTIFY} END`;
}

/*
 * Out: the key, and whether it had waiters, if it was released.
 * One step, because an UPDATE evaluates its condition again after it has waited for the row.
 */
const releaseOneWhere = (condition: string) => `
UPDATE :table l SET ${SET_RELEASED}
WHERE l.key = :key::text AND ${condition} AND l.expires_at > ${NOW} AND ${NOT_DURABLE} <> ''
${returningReleased(NOW)}`;

/** Time during which nobody held the key `l` or waited for it; the clock has also passed its tokens. */
const IS_IDLE = `l.tick IS NULL AND l.notes IS NULL AND ${NOW} - :memoryUs::bigint
  >= greatest(l.expires_at, l.acquired_at, l.version + l.token_count, l.waiting_until)`;

/*
 * The time when this statement has locked the row of the key. A condition of the UPDATE itself is evaluated before the wait for
 * the row, and not again if the row has not changed meanwhile.
 */
const AFTER_ROW_LOCK = `
FROM (SELECT ${NOW} AS now
  FROM (SELECT FROM :table WHERE key = :key::text AND ${DURABLE} <> '' FOR UPDATE) locked OFFSET 0) c
WHERE l.key = :key::text AND c.now <= :latestUs::bigint`;

const LOCK_ROW_COLUMNS = `${NOW}::text AS store_time, l.holder, l.instance, l.version::text, l.expires_at::text,
  l.acquired_at::text, l.tick::text, l.attempt::text`;

/** The texts of all statements. `:table` and `:channel` are constants; the other names are those of parameters. */
export const postgresTexts = {
  /*
   * Out: one row with the version and the time, if it granted a free key; otherwise no row.
   * One step, because the condition of the upsert is evaluated on the locked row. For a single request this takes half the
   * time of grantMany.
   */
  grantOne: `
INSERT INTO :table AS l (key, holder, instance, version, token_count, expires_at, acquired_at)
SELECT :key::text, :holder::text, :instance::text, c.now, :tokenCount::bigint, c.now + :leaseUs::bigint, c.now
FROM (SELECT ${NOW} AS now, ${DURABLE} OFFSET 0) c
WHERE c.now <= :latestUs::bigint
  AND NOT EXISTS (SELECT FROM :table s WHERE s.key = :key::text AND s.expires_at > c.now)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, instance = excluded.instance,
  version = greatest(l.version + l.token_count, excluded.version), token_count = excluded.token_count,
  expires_at = excluded.expires_at, acquired_at = excluded.acquired_at
WHERE l.expires_at <= excluded.acquired_at
RETURNING l.version::text, l.acquired_at::text AS now`,

  /*
   * Out: the time; each row that was granted or marked, with its holder; each row that prevents a grant, as it was read.
   * One step: `seen` only saves refused requests the write; the condition of the upsert decides on the locked row.
   */
  grantMany: `
WITH clock AS (SELECT ${NOW} AS now, ${DURABLE}),
seen AS (
  SELECT c.now, a.*, l.holder AS held_by, l.instance AS held_in, l.version, l.expires_at, l.acquired_at,
    l.tick, l.attempt,
    CASE WHEN l.expires_at > c.now THEN l.holder = a.holder ELSE c.now <= a.latest END AS may,
    CASE WHEN l.expires_at > c.now AND l.holder <> a.holder AND coalesce(l.waiting_until, 0) < c.now + a.again / 2
      AND c.now <= a.latest THEN c.now + a.again END AS mark,
    CASE WHEN c.now <= a.latest THEN a.token_count ELSE 0 END AS tokens
  FROM clock c CROSS JOIN unnest(:keys::text[], :holders::text[], :instances::text[], :leasesUs::bigint[],
    :tokenCounts::bigint[], :retriesWithinUs::bigint[], :latestUs::bigint[])
    AS a(key, holder, instance, lease, token_count, again, latest)
  LEFT JOIN :table l ON l.key = a.key
),
granted AS (
  INSERT INTO :table AS l (${GRANTED_COLUMNS})
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
FROM seen WHERE NOT may`,

  renew: `
WITH clock AS (SELECT ${NOW} AS now, ${DURABLE})
${updateHeld(
  'unnest(:keys::text[], :holders::text[], :leasesUs::bigint[]) AS a(key, holder, lease)',
  '-(c.now + a.lease)',
  'expires_at = greatest(l.expires_at, -excluded.expires_at)',
)}
RETURNING CASE WHEN l.expires_at > 0 THEN l.key END AS key`,

  releaseOne: releaseOneWhere('l.holder = :holder::text'),
  releaseMany: `
WITH clock AS (SELECT ${NOW} AS now, ${NOT_DURABLE})
${updateHeld('unnest(:keys::text[], :holders::text[]) AS a(key, holder)', '0', SET_RELEASED)}
${returningReleased('(SELECT now FROM clock)')}`,
  forceRelease: releaseOneWhere(':fencingToken::bigint BETWEEN l.version AND l.version + l.token_count - 1'),

  /*
   * In, out and one step: as releaseOneWhere.
   * The commit waits for the disk: if the end of a run were lost, the run would be repeated. The end counts even after the
   * lease, while the row names the holder.
   */
  releaseEndedRun: `
UPDATE :table l SET ${SET_RELEASED}, attempt = CASE WHEN l.attempt >= ${PAUSED_ATTEMPT} THEN ${PAUSED_ATTEMPT} ELSE 0 END
WHERE l.key = :key::text AND l.holder = :holder::text AND ${DURABLE} <> ''
${returningReleased(NOW)}`,

  /* Out: one row with the time, and the row of the key or NULLs. */
  readRow: `
SELECT ${LOCK_ROW_COLUMNS}
FROM (SELECT 1) one LEFT JOIN :table l ON l.key = :key::text`,

  readRows: `
SELECT ${LOCK_ROW_COLUMNS}
FROM unnest(:keys::text[]) WITH ORDINALITY AS a(key, n) LEFT JOIN :table l ON l.key = a.key ORDER BY a.n`,

  readPage: `
SELECT l.key, (${IS_IDLE})::int AS is_idle, (l.tick IS NULL AND l.notes IS NULL)::int AS is_lock
FROM :table l WHERE l.key > :afterKey::text ORDER BY l.key LIMIT ${ROWS_PER_PAGE}`,

  /*
   * One step, because the inner SELECT locks the rows and reads them again, and the DELETE reads them once more. It skips
   * rows that others have locked, so that it waits for none. A removal that is lost in a crash is done again later.
   */
  removeIdle: `
DELETE FROM :table l
WHERE l.key = ANY (ARRAY(
    SELECT l.key FROM :table l WHERE l.key = ANY (:keys::text[]) AND ${IS_IDLE} AND ${NOT_DURABLE} <> ''
    ORDER BY l.key FOR UPDATE SKIP LOCKED))
  AND ${IS_IDLE}`,

  list: `
SELECT l.key, ${LOCK_ROW_COLUMNS} FROM :table l
WHERE l.key >= :fromKey::text AND l.key > :afterKey::text AND l.key < :beforeKey::text AND l.expires_at > ${NOW}
ORDER BY l.key LIMIT :limit::bigint`,

  insertMissing: `
INSERT INTO :table (key, instance, version, token_count, expires_at, acquired_at)
SELECT :key::text, '', 0, 0, 0, 0 FROM (SELECT ${LOCK_TIMEOUT} OFFSET 0) setting
ON CONFLICT (key) DO NOTHING`,

  /*
   * In: also the values of the row as it was read.
   * Out: one row with the version, if the row had not changed and it was not too late.
   * One step, because an UPDATE evaluates its condition again after it has waited for the row.
   */
  claim: `
UPDATE :table l SET holder = :holder::text, instance = :instance::text,
  version = greatest(l.version + l.token_count, c.now), token_count = :tokenCount::bigint,
  expires_at = c.now + :leaseUs::bigint, acquired_at = c.now, tick = :tickMs::bigint, attempt = :attempt::bigint ${AFTER_ROW_LOCK}
  AND l.version = :oldVersion::bigint AND l.expires_at = :oldExpiresAtUs::bigint
  AND l.tick IS NOT DISTINCT FROM :oldTickMs::bigint AND coalesce(l.attempt, 0) = :oldAttempt::bigint
RETURNING l.version::text`,

  /* One step, because an UPDATE evaluates its condition again after it has waited for the row. */
  setTick: `
UPDATE :table l SET tick = :tickMs::bigint, attempt = :attempt::bigint ${AFTER_ROW_LOCK}
  AND l.tick IS NOT DISTINCT FROM :oldTickMs::bigint AND coalesce(l.attempt, 0) = :oldAttempt::bigint
RETURNING l.key`,

  /* One step, because an upsert locks the row before it reads the lines to which it adds one. */
  appendHistory: `
INSERT INTO :table AS l (key, instance, version, token_count, expires_at, acquired_at, notes)
SELECT :key::text, '', 0, 0, 0, 0, :entry::text FROM (SELECT ${LOCK_TIMEOUT} OFFSET 0) setting
ON CONFLICT (key) DO UPDATE
SET notes = array_to_string((string_to_array(concat_ws(chr(10), excluded.notes, l.notes), chr(10)))[1:${MAX_HISTORY_ENTRIES}], chr(10))`,

  readHistory: 'SELECT notes FROM :table WHERE key = :key::text',

  cleanUp: `
DELETE FROM :table WHERE key >= :fromKey::text AND key < :beforeKey::text AND expires_at <= ${NOW}
  AND ${LOCK_TIMEOUT} <> '' AND (attempt = 0 OR greatest(expires_at, acquired_at) <= ${NOW} - :afterUs::bigint)`,
};
