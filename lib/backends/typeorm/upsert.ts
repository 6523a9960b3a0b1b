/**
 * What PostgreSQL and SQLite do with a grant whose row exists already.
 *
 * In: `l`, the row; `excluded`, the grant as a first one: its version and acquired_at are the database's time.
 * Out: the row granted anew, or only prolonged for the one who holds it; untouched if it is taken or the tick claimed.
 * One step, because the row is locked before the condition is looked at, and stays so until it is written.
 */
export const ON_CONFLICT_GRANT = `
  ON CONFLICT (key) DO UPDATE SET
    holder = excluded.holder,
    instance = excluded.instance,
    expires_at = excluded.expires_at,
    version = CASE
      WHEN l.expires_at > excluded.acquired_at THEN l.version
      WHEN l.version >= excluded.version THEN l.version + 1
      ELSE excluded.version
    END,
    acquired_at = CASE WHEN l.expires_at > excluded.acquired_at THEN l.acquired_at ELSE excluded.acquired_at END,
    tick = CASE WHEN l.expires_at > excluded.acquired_at THEN l.tick ELSE coalesce(excluded.tick, l.tick) END
  WHERE (l.holder = excluded.holder AND l.expires_at > excluded.acquired_at)
     OR (l.expires_at <= excluded.acquired_at AND coalesce(l.tick < excluded.tick, true))`;
