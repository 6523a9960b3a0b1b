/** The time in µs, but only as exact as SQLite's clock: to the ms. */
export const READ_TIME = `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now`;

/**
 * All statements on one table, as text. Each is one step together with those around it, because SQLite has one writer at a
 * time, and the transaction is it.
 */
export const sqliteSql = (table: string) => ({
  readRow: `
SELECT holder, instance, CAST(version AS TEXT) AS version, expires_at, acquired_at, tick, attempt, waiting_until
FROM ${table} WHERE key = ?`,
  grant: grant(table),
  extendLease: `UPDATE ${table} SET expires_at = ? WHERE key = ?`,
  markWaiting: `UPDATE ${table} SET waiting_until = ? WHERE key = ?`,
  release: `${setReleased(table)} WHERE key = ? AND holder = ? AND expires_at > ? RETURNING waiting_until`,
  forceRelease: `${setReleased(table)}
WHERE key = ? AND CAST(? AS INTEGER) BETWEEN version AND version + token_count - 1 AND expires_at > ?
RETURNING waiting_until`,
  // The end of a run counts even after its lease, while the row names the holder.
  releaseEndedRun: `${setReleased(table)}, attempt = 0 WHERE key = ? AND holder = ? RETURNING waiting_until`,
  insertMissing: `
INSERT INTO ${table} (key, instance, version, token_count, expires_at, acquired_at) VALUES (?, '', 0, 0, 0, 0)
ON CONFLICT (key) DO NOTHING`,
  claim: claim(table),
  register: `UPDATE ${table} SET tick = ?, attempt = 0 WHERE key = ? AND tick IS NULL RETURNING key`,
  writeHistory: `
INSERT INTO ${table} (key, instance, version, token_count, expires_at, acquired_at, notes)
VALUES (?, '', 0, 0, 0, 0, ?) ON CONFLICT (key) DO UPDATE SET notes = excluded.notes`,
  readHistory: `SELECT notes FROM ${table} WHERE key = ?`,
  cleanUp: `
DELETE FROM ${table} WHERE key >= ? AND key < ? AND expires_at <= ?
  AND (attempt = 0 OR max(expires_at, acquired_at) <= ?)`,
});

/*
 * In: key, holder, instance, version, number of tokens, end of the lease, time.
 * Out: one row with the version, if the key was free.
 */
const grant = (table: string) => `
INSERT INTO ${table} AS l (key, holder, instance, version, token_count, expires_at, acquired_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, instance = excluded.instance,
  version = max(l.version + l.token_count, excluded.version), token_count = excluded.token_count,
  expires_at = excluded.expires_at, acquired_at = excluded.acquired_at
WHERE l.expires_at <= excluded.acquired_at
RETURNING CAST(version AS TEXT) AS version`;

// The negative sign lets RETURNING show the former value, and shows other statements that there are no more waiters.
const setReleased = (table: string) => `
UPDATE ${table} SET holder = NULL, expires_at = 0, acquired_at = ?,
  waiting_until = CASE WHEN waiting_until > 0 THEN -waiting_until END`;

/*
 * In: holder, instance, time, number of tokens, end of the lease, time, tick ms, attempt; key; of the row as it was read:
 *   version, expires_at, tick or NULL, attempt.
 * Out: one row with the version, if the row had not changed.
 */
const claim = (table: string) => `
UPDATE ${table} SET holder = ?, instance = ?, version = max(version + token_count, ?), token_count = ?,
  expires_at = ?, acquired_at = ?, tick = ?, attempt = ?
WHERE key = ? AND version = CAST(? AS INTEGER) AND expires_at = ? AND tick IS ? AND coalesce(attempt, 0) = ?
RETURNING CAST(version AS TEXT) AS version`;
