/** The columns that a grant fills in. */
export const GRANTED_COLUMNS =
  'key, holder, instance, version, token_count, expires_at, acquired_at, waiting_until';

const isHeld = 'l.expires_at > excluded.acquired_at';
const mayBeGranted = `(
    (l.holder = excluded.holder AND ${isHeld}) OR (NOT ${isHeld} AND excluded.token_count > 0))`;
const ifGranted = (then: string, otherwise: string) =>
  `CASE WHEN ${mayBeGranted} THEN ${then} ELSE ${otherwise} END`;
const ifHeld = (then: string, otherwise: string) => `CASE WHEN ${isHeld} THEN ${then} ELSE ${otherwise} END`;

/**
 * What becomes of a grant whose row exists already.
 *
 * In: `l`, the row; `excluded`, the grant as a first one: its version and acquired_at are the database's time, and
 *   its waiting_until is until when the asker wants to know of a release if he is refused. Without tokens it came out
 *   of its time: it may only prolong what the asker still holds when the row is locked.
 * Out: the row granted anew, or only prolonged for the one who holds it; only marked if somebody else holds it and the
 *   asker waits; else untouched.
 * One step, because the row is locked before the condition is looked at, and stays so until it is written.
 */
export const ON_CONFLICT_GRANT = `
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
