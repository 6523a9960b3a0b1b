import { MAX_HISTORY_ENTRIES } from '../../../../core/backend.js';

/** All statements on one table, as text. `count`: for how many keys. */
export const mysqlSql = (table: string) => ({
  grant: (count: number) => grant(table, count),
  grantReturning: (count: number) => `${grant(table, count)}\nRETURNING ${LOCK_ROW_COLUMNS}`,
  readRows: (count: number) =>
    `SELECT ${LOCK_ROW_COLUMNS} FROM ${table} WHERE \`key\` IN (${listOf('?', count)})`,
  renew: (count: number) => updateHeld(table, SET_RENEWED, count),
  release: (count: number) => updateHeld(table, SET_RELEASED, count),
  readReleased: (count: number) =>
    `SELECT \`key\`, expires_at, waiting_until FROM ${table} WHERE \`key\` IN (${listOf('?', count)})`,
  forceRelease: forceRelease(table),
  // The end of a run counts even after its lease, while the row names the holder.
  releaseEndedRun: `UPDATE ${table} FORCE INDEX (PRIMARY) SET attempt = 0, ${SET_RELEASED} WHERE ${CLAIM_ONE}`,
  readRow: readRow(table),
  insertMissing: insertMissing(table),
  claim: claim(table),
  register: `UPDATE ${table} SET tick = ?, attempt = 0 WHERE \`key\` = ? AND tick IS NULL`,
  appendHistory: appendHistory(table),
  readHistory: `SELECT CONVERT(notes USING utf8mb4) AS notes FROM ${table} WHERE \`key\` = ?`,
  cleanUp: cleanUp(table),
});

const listOf = (item: string, count: number) => Array(count).fill(item).join(', ');

/** The time at which the statement began, the same everywhere in it, and independent of the session's time zone. */
const NOW = `TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(6))`;

const LOCK_ROW_COLUMNS = `\`key\`, holder, instance, version, expires_at, acquired_at, tick, attempt, ${NOW} AS store_time`;

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
const grant = (table: string, count: number) => `
INSERT INTO ${table} (\`key\`, holder, instance, version, token_count, expires_at, acquired_at, waiting_until)
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
const updateHeld = (table: string, set: string, count: number) => `
UPDATE ${table} FORCE INDEX (PRIMARY) SET ${set} WHERE ${count === 1 ? CLAIM_ONE : claims(count)} AND expires_at > ${NOW}`;
const CLAIM_ONE = '`key` = ? AND holder = ?';
const claims = (count: number) =>
  `\`key\` IN (${listOf('?', count)}) AND (\`key\`, holder) IN (${listOf('(?, ?)', count)})`;
const SET_RENEWED = `expires_at = GREATEST(expires_at, ${NOW} + ?)`;
// The insertId is 1 if one of the keys had waiters. The sign of waiting_until and the mark in expires_at show which one.
const SET_RELEASED = `holder = NULL,
  waiting_until = IF(waiting_until > ${NOW} AND LAST_INSERT_ID(IF(waiting_until > 0, 1, 0)), -waiting_until, NULL),
  expires_at = -?, acquired_at = ${NOW}`;

/* In: key, fencing token. Out and why one step: as above. */
const forceRelease = (table: string) => `
UPDATE ${table} SET holder = NULL, expires_at = 0, acquired_at = ${NOW}, waiting_until = NULL
WHERE \`key\` = ? AND CAST(? AS SIGNED) BETWEEN version AND version + token_count - 1 AND expires_at > ${NOW}`;

/* In: key. Out: one row with the time, and the row of the key or NULLs. */
const readRow = (table: string) => `
SELECT ${NOW} AS store_time, l.holder, l.instance, l.version, l.expires_at, l.acquired_at, l.tick, l.attempt
FROM (SELECT 1) one LEFT JOIN ${table} l ON l.\`key\` = ?`;

const insertMissing = (table: string) => `
INSERT INTO ${table} (\`key\`, instance, version, token_count, expires_at, acquired_at) VALUES (?, '', 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE version = version`;

/*
 * In: holder, instance, number of tokens, lease µs, tick ms, attempt; key, latest µs; of the row as it was read: version,
 *   expires_at, tick or NULL, attempt.
 * Out: the version as insertId and one matching row, if the row had not changed and it was not too late.
 * One step, because an UPDATE locks the row before it evaluates the condition. Assignments take effect in their order.
 */
const claim = (table: string) => `
UPDATE ${table} FORCE INDEX (PRIMARY) SET holder = ?, instance = CONVERT(? USING utf8mb4),
  version = LAST_INSERT_ID(GREATEST(version + token_count, ${NOW})), token_count = ?,
  expires_at = ${NOW} + ?, acquired_at = ${NOW}, tick = ?, attempt = ?
WHERE \`key\` = ? AND ${NOW} <= ? AND version = CAST(? AS SIGNED) AND expires_at = ? AND tick <=> ?
  AND COALESCE(attempt, 0) = ?`;

/* In: key, line. One step, because an upsert locks the row before it reads the lines to which it adds one. */
const appendHistory = (table: string) => `
INSERT INTO ${table} (\`key\`, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (?, '', 0, 0, 0, 0, CONVERT(? USING utf8mb4))
ON DUPLICATE KEY UPDATE
  notes = SUBSTRING_INDEX(CONCAT_WS(CHAR(10 USING utf8mb4), VALUES(notes), notes), CHAR(10 USING utf8mb4), ${MAX_HISTORY_ENTRIES})`;

const cleanUp = (table: string) => `
DELETE FROM ${table} WHERE \`key\` >= ? AND \`key\` < ? AND expires_at <= ${NOW}
  AND (attempt = 0 OR GREATEST(expires_at, acquired_at) <= ${NOW} - ?)`;
