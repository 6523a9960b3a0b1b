import { MAX_HISTORY_ENTRIES } from '../../../../core/backend.js';
import { PAUSED_ATTEMPT } from '../../../../core/tick.js';
import { ROWS_PER_PAGE } from '../../statements/scan-statements.js';

/** The time in µs, but only as exact as SQLite's clock: to the ms. Read once in a transaction, and passed as `:now`. */
export const READ_TIME = `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now`;

export const READ_JOURNAL_MODE = 'PRAGMA journal_mode';
export const SET_SYNCHRONOUS = 'PRAGMA synchronous = ';

// The negative sign lets RETURNING show the former value, and shows other statements that there are no more waiters.
const SET_RELEASED = `holder = NULL, expires_at = 0, acquired_at = :now,
  waiting_until = CASE WHEN waiting_until > 0 THEN -waiting_until END`;

const RETURNING_RELEASED = `RETURNING coalesce(-waiting_until > :now, 0) AS others_wait`;

const IS_OURS = 'key = :key AND holder = :holder';

/** One entry more, and without the last one if there are as many as are kept. The inner `rtrim` ends at a line break. */
const NOTES = `excluded.notes || coalesce(char(10) || CASE
    WHEN length(l.notes) - length(replace(l.notes, char(10), '')) < ${MAX_HISTORY_ENTRIES - 1} THEN l.notes
    ELSE rtrim(rtrim(l.notes, replace(l.notes, char(10), '')), char(10)) END, '')`;

/** Time during which nobody held the key or waited for it; the clock has also passed its tokens. */
const IS_IDLE = `tick IS NULL AND notes IS NULL AND :now - :memoryUs
  >= max(expires_at, acquired_at, version + token_count, coalesce(waiting_until, 0))`;

/**
 * The texts of all statements. Each is one step together with those around it, because SQLite has one writer at a time, and
 * the transaction is it.
 */
export const sqliteTexts = {
  /* Out: one row with the version, if the key was free. `:minVersion`: see `NewestTokens`. */
  grant: `
INSERT INTO :table AS l (key, holder, instance, version, token_count, expires_at, acquired_at)
VALUES (:key, :holder, :instance, max(:now, :minVersion), :tokenCount, :now + :leaseUs, :now)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, instance = excluded.instance,
  version = max(l.version + l.token_count, excluded.version), token_count = excluded.token_count,
  expires_at = excluded.expires_at, acquired_at = excluded.acquired_at
WHERE l.expires_at <= excluded.acquired_at
RETURNING CAST(version AS TEXT) AS version`,

  markWaiting: `
UPDATE :table SET waiting_until = :now + :retryWithinUs
WHERE key = :key AND coalesce(waiting_until, 0) < :now + :retryWithinUs / 2`,

  renew: `
UPDATE :table SET expires_at = max(expires_at, :now + :leaseUs) WHERE ${IS_OURS} AND expires_at > :now RETURNING key`,

  release: `UPDATE :table SET ${SET_RELEASED} WHERE ${IS_OURS} AND expires_at > :now ${RETURNING_RELEASED}`,

  forceRelease: `
UPDATE :table SET ${SET_RELEASED}
WHERE key = :key AND CAST(:fencingToken AS INTEGER) BETWEEN version AND version + token_count - 1
  AND expires_at > :now RETURNING key`,

  // The end of a run counts even after its lease, while the row names the holder.
  releaseEndedRun: `
UPDATE :table SET ${SET_RELEASED}, attempt = CASE WHEN attempt >= ${PAUSED_ATTEMPT} THEN ${PAUSED_ATTEMPT} ELSE 0 END
WHERE ${IS_OURS} ${RETURNING_RELEASED}`,

  /* Out: one row with the time, and the row of the key or NULLs. */
  readRow: `
SELECT :now AS store_time, holder, instance, CAST(version AS TEXT) AS version, expires_at, acquired_at, tick, attempt
FROM (SELECT 1) LEFT JOIN :table ON key = :key`,

  readPage: `
SELECT key, ${IS_IDLE} AS is_idle, tick IS NULL AND notes IS NULL AS is_lock
FROM :table WHERE key > :afterKey ORDER BY key LIMIT ${ROWS_PER_PAGE}`,

  removeIdle: `DELETE FROM :table WHERE key = :key AND ${IS_IDLE}`,

  /* SQLite enters the index at the first lower bound only, so a page would read all keys before it. */
  list: `
SELECT key, :now AS store_time, holder, instance, CAST(version AS TEXT) AS version, expires_at, acquired_at, tick, attempt
FROM :table WHERE key >= max(:fromKey, :afterKey) AND key > :afterKey AND key < :beforeKey AND expires_at > :now
ORDER BY key LIMIT :limit`,

  insertMissing: `
INSERT INTO :table (key, instance, version, token_count, expires_at, acquired_at) VALUES (:key, '', 0, 0, 0, 0)
ON CONFLICT (key) DO NOTHING`,

  /*
   * In: also the values of the row as it was read.
   * Out: one row with the version, if the row had not changed and it was not too late.
   */
  claim: `
UPDATE :table SET holder = :holder, instance = :instance, version = max(version + token_count, :now),
  token_count = :tokenCount, expires_at = :now + :leaseUs, acquired_at = :now, tick = :tickMs, attempt = :attempt
WHERE key = :key AND :now <= :latestUs AND version = CAST(:oldVersion AS INTEGER) AND expires_at = :oldExpiresAtUs
  AND tick IS :oldTickMs AND coalesce(attempt, 0) = :oldAttempt
RETURNING CAST(version AS TEXT) AS version`,

  setTick: `
UPDATE :table SET tick = :tickMs, attempt = :attempt
WHERE key = :key AND :now <= :latestUs AND tick IS :oldTickMs AND coalesce(attempt, 0) = :oldAttempt RETURNING key`,

  appendHistory: `
INSERT INTO :table AS l (key, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (:key, '', 0, 0, 0, 0, :entry)
ON CONFLICT (key) DO UPDATE SET notes = ${NOTES}`,

  readHistory: 'SELECT notes FROM :table WHERE key = :key',

  cleanUp: `
DELETE FROM :table WHERE key >= :fromKey AND key < :beforeKey AND expires_at <= :now
  AND (attempt = 0 OR max(expires_at, acquired_at) <= :now - :afterUs)`,
};
