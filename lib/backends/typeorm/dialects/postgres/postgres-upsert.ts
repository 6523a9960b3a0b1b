/** The columns that a grant writes. */
export const GRANTED_COLUMNS =
  'key, holder, instance, version, token_count, expires_at, acquired_at, waiting_until';

const isHeld = 'l.expires_at > excluded.acquired_at';
const mayBeGranted = `(
    (l.holder = excluded.holder AND ${isHeld}) OR (NOT ${isHeld} AND excluded.token_count > 0))`;
const ifGranted = (then: string, otherwise: string) =>
  `CASE WHEN ${mayBeGranted} THEN ${then} ELSE ${otherwise} END`;
const ifHeld = (then: string, otherwise: string) => `CASE WHEN ${isHeld} THEN ${then} ELSE ${otherwise} END`;

/**
 * The conflict clause of a grant whose row exists already.
 *
 * In: `l`, the row; `excluded`, the row that a first grant would insert. Its `version` and `acquired_at` are the database's
 *   time. Its `waiting_until` is set if a refused requester waits: until then it wants to be notified. Its `token_count` is 0
 *   if the request came too late: it may then only extend a lease that its holder still has when the row is locked.
 * Out: a free row is granted; the lease of the same holder is extended; a row of another holder is only marked, if the
 *   requester waits; any other row is unchanged.
 * One step, because the row is locked before the condition is evaluated, and stays locked until it is written.
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
