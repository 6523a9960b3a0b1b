import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import type { AcquireRequest } from '../../core/backend.js';
import { askedOf, leaseUsOf } from './asked.js';
import type { Dialect, Fault, Query, Statements } from './dialect.js';
import { errorOf } from './error-of.js';
import {
  type AnyOptions,
  CONNECT_LIMIT_MS,
  MOST_CONNECTIONS,
  extraOf,
  masterOf,
  shorterOf,
} from './own-options.js';
import { type Granting, type SeenColumns, seenFrom } from './seen.js';
import { ON_CONFLICT_GRANT } from './upsert.js';

const NOW = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`;

/** Longer than a statement of ours ever takes, shorter than anybody waits for its answer. */
const STATEMENT_LIMIT_MS = 5_000;
const LOCK_LIMIT_MS = 1_000;

/** Longer than the pause between two renewals of usual leases, so that they find an open connection. */
const IDLE_LIMIT_MS = 60_000;

const FAULTS: Readonly<Record<string, Fault>> = {
  '40001': 'busy', // serialization failure
  '40P01': 'busy', // deadlock
  '55P03': 'busy', // lock timeout
  '23505': 'busy', // somebody else is creating the table
  '42P07': 'busy',
  '42P01': 'no table',
  '42703': 'no column',
  '42P10': 'no column', // its key is not unique
  '42501': 'forbidden',
  '3F000': 'forbidden', // no such schema
};

export const postgres: Dialect = {
  columnTypes: {
    // "C" compares bytes, and its index outlives upgrades of the system's collations.
    key: { type: 'text', collation: 'C' },
    holder: { type: 'text' },
    instance: { type: 'text' },
  },
  quote: (name) => `"${name}"`,
  ownOptions,
  socketOf: (client) => (client as { connection?: { stream?: Socket } }).connection?.stream,
  // CREATE TABLE IF NOT EXISTS fails when two do it at once: both see no table, and the names of types are unique.
  create: (query, ddl) =>
    query(
      `DO $create$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('nestjs-distributed-lock')); ${ddl}; END $create$`,
    ),
  faultOf(cause) {
    const { code, message } = errorOf(cause);
    return message.includes('unsupported startup parameter') ? 'setting refused' : (FAULTS[code] ?? 'other');
  },
  on,
};

/** Poolers such as PgBouncer know no timeouts at start; without them our own deadline still ends every wait. */
function ownOptions(options: DataSourceOptions) {
  const master = masterOf(options);
  const extra = extraOf(options);
  const own = (timeouts: AnyOptions) =>
    ({
      ...master,
      installExtensions: false,
      // The pool drops the connection and opens another when it is needed.
      poolErrorHandler: () => undefined,
      extra: {
        ...extra,
        max: MOST_CONNECTIONS,
        min: 0,
        idleTimeoutMillis: IDLE_LIMIT_MS,
        keepAlive: true,
        connectionTimeoutMillis: shorterOf(
          CONNECT_LIMIT_MS,
          extra['connectionTimeoutMillis'] ?? master['connectTimeoutMS'],
        ),
        ...timeouts,
      },
    }) as unknown as DataSourceOptions;
  return [
    own({ statement_timeout: STATEMENT_LIMIT_MS, lock_timeout: LOCK_LIMIT_MS }),
    own({ statement_timeout: undefined, lock_timeout: undefined }),
  ] as const;
}

function on(table: string): Statements {
  /*
   * In: $1 key, $2 holder, $3 instance, $4 lease µs, $5 tick ms or NULL, $6 and $7 earliest and latest µs to claim it.
   * Out: one row: the row as this statement found it, and the version if it granted.
   * One step: `seen` only spares a refused attempt the write; the condition of the upsert decides on the locked row.
   */
  const grant = `
WITH clock AS (SELECT ${NOW} AS now),
seen AS (
  SELECT clock.now, l.holder, l.instance, l.version, l.expires_at, l.acquired_at, l.tick
  FROM clock LEFT JOIN ${table} l ON l.key = $1::text
),
granted AS (
  INSERT INTO ${table} AS l (key, holder, instance, version, expires_at, acquired_at, tick)
  SELECT $1::text, $2::text, $3::text, s.now, s.now + $4::bigint, s.now, $5::bigint
  FROM seen s
  WHERE (s.holder = $2::text AND s.expires_at > s.now)
     OR (coalesce(s.expires_at, 0) <= s.now
         AND coalesce(s.tick < $5::bigint, true)
         AND ($5::bigint IS NULL OR s.now BETWEEN $6::bigint AND $7::bigint))
  ${ON_CONFLICT_GRANT}
  RETURNING l.version
)
SELECT (SELECT version::text FROM granted) AS granted, s.now::text AS store_time, s.holder, s.instance,
  s.version::text, s.expires_at::text, s.acquired_at::text, s.tick::text
FROM seen s`;

  const look = `
SELECT ${NOW}::text AS store_time, l.holder, l.instance,
  l.version::text, l.expires_at::text, l.acquired_at::text, l.tick::text
FROM (SELECT 1) one LEFT JOIN ${table} l ON l.key = $1::text`;

  /*
   * In: $1 key, $2 holder or fencing token, $3 lease µs.
   * Out: how many rows changed, 0 or 1; selected, because what an UPDATE gives back differs between versions of TypeORM.
   * One step, because an UPDATE looks at its condition again after it waited for the row.
   */
  const changed = (update: string) =>
    `WITH changed AS (UPDATE ${table} SET ${update} RETURNING 1) SELECT count(*)::int AS changed FROM changed`;
  const held = `key = $1::text AND holder = $2::text AND expires_at > ${NOW}`;
  const renew = changed(`expires_at = greatest(expires_at, ${NOW} + $3::bigint) WHERE ${held}`);
  const release = changed(`holder = NULL, expires_at = 0 WHERE ${held}`);
  const forceRelease = changed(
    `holder = NULL, expires_at = 0 WHERE key = $1::text AND version = $2::bigint AND expires_at > ${NOW}`,
  );

  return {
    async grant(query, request: AcquireRequest): Promise<Granting> {
      const { instance, leaseUs, tickMs, earliestUs, latestUs } = askedOf(request);
      const [row] = (await query(grant, [
        request.key,
        request.holder,
        instance,
        leaseUs,
        tickMs,
        earliestUs,
        latestUs,
      ])) as [SeenColumns & { granted: string | null }];
      return row.granted === null ? { seen: seenFrom(row) } : { fencingToken: BigInt(row.granted) };
    },
    renew: (query, request) => didChange(query, renew, [request.key, request.holder, leaseUsOf(request)]),
    release: (query, { key, holder }) => didChange(query, release, [key, holder]),
    forceRelease: (query, key, fencingToken) => didChange(query, forceRelease, [key, String(fencingToken)]),
    async look(query, key) {
      const [row] = (await query(look, [key])) as [SeenColumns];
      return seenFrom(row);
    },
  };
}

async function didChange(query: Query, sql: string, parameters: readonly unknown[]): Promise<boolean> {
  const [row] = (await query(sql, parameters)) as [{ changed: unknown }];
  return Number(row.changed) === 1;
}
