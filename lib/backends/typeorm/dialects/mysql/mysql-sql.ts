import { MAX_HISTORY_ENTRIES } from '../../../../core/backend.js';
import { PAUSED_ATTEMPT } from '../../../../core/tick.js';
import type { CommonStatementTexts } from '../../statements/common-statements.js';
import { ROWS_PER_PAGE } from '../../statements/scan-statements.js';

/** The time at which the statement began, the same everywhere in it, and independent of the session's time zone. */
const NOW = `TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(6))`;

const LOCK_ROW_COLUMNS = `holder, instance, version, expires_at, acquired_at, tick, attempt, ${NOW} AS store_time`;

const listOf = (item: string, count: number) => Array<string>(count).fill(item).join(', ');

const IS_GRANTED = 'holder = VALUES(holder)';
const IS_ANEW = `${IS_GRANTED} AND expires_at <= ${NOW}`;
const FIRST_ROW = `(?, ?, CONVERT(? USING utf8mb4), LAST_INSERT_ID(IF(${NOW} <= ?, ${NOW}, 0)), ?,
  IF(version > 0, ${NOW} + ?, -?), ${NOW}, -?)`;

/*
 * In: for each request key, holder, instance, latest µs to grant it, number of tokens, lease µs twice, and the µs within
 *   which a refused request is repeated, or NULL.
 * Out: the version of the last grant as insertId, 0 if the last request was refused; the rows, with RETURNING.
 * One step, because the row is locked before it is read.
 * Assignments take effect in their order. Holders are unique, so after its assignment `holder` shows whether the row was
 * granted; until its own assignment `expires_at` shows whether the key was free before.
 * The argument of LAST_INSERT_ID depends on the row: a constant would be evaluated, and kept, before any row is read.
 * A first row that came too late is a free one: its version is 0, and its `expires_at` is the negative lease.
 */
const grant = (count: number) => `
INSERT INTO :table (\`key\`, holder, instance, version, token_count, expires_at, acquired_at, waiting_until)
VALUES ${listOf(FIRST_ROW, count)}
ON DUPLICATE KEY UPDATE
  holder = IF(expires_at > ${NOW}, holder,
    IF(VALUES(version) > 0, VALUES(holder), NULL)),
  instance = IF(${IS_GRANTED}, VALUES(instance), instance),
  version = IF(${IS_GRANTED},
    LAST_INSERT_ID(IF(expires_at > ${NOW}, version, GREATEST(version + token_count, ${NOW}))),
    version + LAST_INSERT_ID(IF(version IS NULL, 1, 0))),
  token_count = IF(${IS_ANEW}, VALUES(token_count), token_count),
  acquired_at = IF(${IS_ANEW}, ${NOW}, acquired_at),
  waiting_until = IF(expires_at > ${NOW} AND NOT (${IS_GRANTED})
    AND COALESCE(waiting_until, 0) < ${NOW} - VALUES(waiting_until) / 2, ${NOW} - VALUES(waiting_until), waiting_until),
  expires_at = IF(${IS_GRANTED},
    GREATEST(expires_at, IF(VALUES(version) > 0, VALUES(expires_at), ${NOW} - VALUES(expires_at))), expires_at)`;

/*
 * In: the value to set, then all keys, then each key with its holder; or one key and one holder.
 * Out: how many rows matched.
 * One step, because an UPDATE locks the row before it evaluates the condition. The index is forced, so that the statement
 * does not read rows of other keys, which might be locked.
 */
const updateHeld = (set: string, count: number) => `
UPDATE :table FORCE INDEX (PRIMARY) SET ${set} WHERE ${count === 1 ? IS_HELD : areHeld(count)} AND expires_at > ${NOW}`;
const IS_HELD = '`key` = ? AND holder = ?';
const areHeld = (count: number) =>
  `\`key\` IN (${listOf('?', count)}) AND (\`key\`, holder) IN (${listOf('(?, ?)', count)})`;

// The insertId is 1 if one of the keys had waiters. The sign of waiting_until and the mark in expires_at show which one.
const setReleased = (mark: string) => `holder = NULL,
  waiting_until = IF(waiting_until > ${NOW} AND LAST_INSERT_ID(IF(waiting_until > 0, 1, 0)), -waiting_until, NULL),
  expires_at = -${mark}, acquired_at = ${NOW}`;

/** Time during which nobody held the key or waited for it; the clock has also passed its tokens. */
const isIdle = (memoryUs: string) => `tick IS NULL AND notes IS NULL AND ${NOW} - ${memoryUs}
  >= GREATEST(expires_at, acquired_at, version + token_count, COALESCE(waiting_until, 0))`;

/** With the µs of the token memory, then the keys. A locking read or a DELETE locks each row before it evaluates this. */
const areIdle = (count: number) => `${isIdle('?')} AND \`key\` IN (${listOf('?', count)})`;

/*
 * In: the µs of the token memory, then the keys.
 * One step, because a client that is suspended between two would leave the rows locked. The inner SELECT locks the rows, and
 * skips those that others have locked: a statement that waits while it has locked other rows may end the transaction of an
 * application by a deadlock. Its limit keeps it apart from the DELETE, and the order of the join is fixed, so that the DELETE
 * reads only rows that are locked already. If the row of a key is gone already, it locks the gap, until its end.
 */
const removeIdle = (count: number) => `
DELETE l FROM (
    SELECT \`key\` FROM :table FORCE INDEX (PRIMARY) WHERE ${areIdle(count)}
    ORDER BY \`key\` LIMIT ${count} FOR UPDATE SKIP LOCKED
  ) idle STRAIGHT_JOIN :table l FORCE INDEX (PRIMARY) ON l.\`key\` = idle.\`key\``;

/* The same for MariaDB before 10.6, which has no SKIP LOCKED: fails at once if others have locked one of the rows. */
const removeIdleUnlocked = (count: number) => `
SET STATEMENT innodb_lock_wait_timeout = 0 FOR
DELETE l FROM :table l FORCE INDEX (PRIMARY) WHERE ${areIdle(count)}`;

/** The statements for `count` keys. Their parameters have no names. */
export const mysqlTexts = {
  grant,
  grantReturning: (count: number) => `${grant(count)}\nRETURNING \`key\`, ${LOCK_ROW_COLUMNS}`,
  readRows: (count: number) => `SELECT \`key\`, ${LOCK_ROW_COLUMNS} ${fromKeys(count)}`,
  renew: (count: number) => updateHeld(`expires_at = GREATEST(expires_at, ${NOW} + ?)`, count),
  release: (count: number) => updateHeld(setReleased('?'), count),
  removeIdle,
  removeIdleUnlocked,
  readReleased: (count: number) => `SELECT \`key\`, expires_at, waiting_until ${fromKeys(count)}`,
};
const fromKeys = (count: number) => `FROM :table WHERE \`key\` IN (${listOf('?', count)})`;

/**
 * In: the key. Locks its row until the end of the caller's transaction, which nothing grants. The row becomes idle, and is removed
 * with other idle rows, when the last such transaction is long over.
 * One step, because a locking read of a missing row would lock a gap, and two of them would deadlock at their inserts. The instance
 * is not empty, because the session is the application's: MariaDB's EMPTY_STRING_IS_NULL would make it NULL.
 */
export const lockRowSql = (table: string) => `
INSERT INTO ${table} (\`key\`, instance, version, token_count, expires_at, acquired_at) VALUES (?, '-', 0, 0, 0, ${NOW})
ON DUPLICATE KEY UPDATE acquired_at = ${NOW}`;

export const mysqlCommonTexts: CommonStatementTexts = {
  /*
   * Out: one row with the time, whether the server is read-only, and the row of the key or NULLs.
   * Newer versions of MariaDB have other values than 0 and 1.
   */
  readRow: `SELECT ${LOCK_ROW_COLUMNS}, CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') AS read_only FROM (SELECT 1) one LEFT JOIN :table ON \`key\` = :key`,

  readPage: `
SELECT \`key\`, ${isIdle(':memoryUs')} AS is_idle, tick IS NULL AND notes IS NULL AS is_lock
FROM :table FORCE INDEX (PRIMARY) WHERE \`key\` > :afterKey ORDER BY \`key\` LIMIT ${ROWS_PER_PAGE}`,

  list: `
SELECT \`key\`, ${LOCK_ROW_COLUMNS} FROM :table
WHERE \`key\` >= :fromKey AND \`key\` > :afterKey AND \`key\` < :beforeKey AND expires_at > ${NOW} ORDER BY \`key\` LIMIT :limit`,

  insertMissing: `
INSERT INTO :table (\`key\`, instance, version, token_count, expires_at, acquired_at) VALUES (:key, '', 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE version = version`,

  /*
   * In: also the values of the row as it was read.
   * Out: the version as insertId and one matching row, if the row had not changed and it was not too late.
   * One step, because an UPDATE locks the row before it evaluates the condition. Assignments take effect in their order.
   */
  claim: `
UPDATE :table FORCE INDEX (PRIMARY) SET holder = :holder, instance = CONVERT(:instance USING utf8mb4),
  version = LAST_INSERT_ID(GREATEST(version + token_count, ${NOW})), token_count = :tokenCount,
  expires_at = ${NOW} + :leaseUs, acquired_at = ${NOW}, tick = :tickMs, attempt = :attempt
WHERE \`key\` = :key AND ${NOW} <= :latestUs AND version = CAST(:oldVersion AS SIGNED)
  AND expires_at = :oldExpiresAtUs AND tick <=> :oldTickMs AND COALESCE(attempt, 0) = :oldAttempt`,

  /* It reads the time before it waits for locks, so the caller sends none that could still wait at its timeout. */
  setTick: `
UPDATE :table SET tick = :tickMs, attempt = :attempt
WHERE \`key\` = :key AND ${NOW} <= :latestUs AND tick <=> :oldTickMs AND COALESCE(attempt, 0) = :oldAttempt`,

  // The end of a run counts even after its lease, while the row names the holder.
  releaseEndedRun: `
UPDATE :table FORCE INDEX (PRIMARY) SET attempt = IF(attempt >= ${PAUSED_ATTEMPT}, ${PAUSED_ATTEMPT}, 0), ${setReleased('0')}
WHERE \`key\` = :key AND holder = :holder`,

  forceRelease: `
UPDATE :table SET holder = NULL, expires_at = 0, acquired_at = ${NOW}, waiting_until = NULL
WHERE \`key\` = :key AND CAST(:fencingToken AS SIGNED) BETWEEN version AND version + token_count - 1
  AND expires_at > ${NOW}`,

  /* One step, because an upsert locks the row before it reads the lines to which it adds one. */
  appendHistory: `
INSERT INTO :table (\`key\`, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (:key, '', 0, 0, 0, 0, CONVERT(:entry USING utf8mb4))
ON DUPLICATE KEY UPDATE
  notes = SUBSTRING_INDEX(CONCAT_WS(CHAR(10 USING utf8mb4), VALUES(notes), notes), CHAR(10 USING utf8mb4), ${MAX_HISTORY_ENTRIES})`,

  readHistory: 'SELECT CONVERT(notes USING utf8mb4) AS notes FROM :table WHERE `key` = :key',

  cleanUp: `
DELETE FROM :table WHERE \`key\` >= :fromKey AND \`key\` < :beforeKey AND expires_at <= ${NOW}
  AND (attempt = 0 OR GREATEST(expires_at, acquired_at) <= ${NOW} - :afterUs)`,
};
