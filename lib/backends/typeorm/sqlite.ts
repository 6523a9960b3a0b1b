import { setTimeout as sleep } from 'node:timers/promises';
import type { DataSourceOptions } from 'typeorm';
import { askedOf, leaseUsOf } from './asked.js';
import type { Dialect, Fault, Query, Statements } from './dialect.js';
import { errorOf } from './error-of.js';
import { masterOf } from './own-options.js';
import { type SeenColumns, refusal, seenFrom } from './seen.js';
import { ON_CONFLICT_GRANT } from './upsert.js';

/** As exact as SQLite's clock, which is the same everywhere in one statement: to the ms. */
const NOW = `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`;

/** Surely another ms on that clock, even if timers run early. */
const CLOCK_STEP_MS = 2;

/** The driver waits for a lock by blocking the whole process, so it hardly may; we wait in between. */
const BLOCKING_LIMIT_MS = 5;

/** SQLite from 3.35, through better-sqlite3 or what speaks like it. */
export const sqlite: Dialect = {
  columnTypes: { key: { type: 'text' }, holder: { type: 'text' }, instance: { type: 'text' } },
  quote: (name) => `"${name}"`,
  ownOptions: (options) => [
    {
      ...masterOf(options),
      timeout: BLOCKING_LIMIT_MS,
      // What found the database busy must be the same statement object when it is tried again: see `write`.
      statementCacheSize: 100,
    } as unknown as DataSourceOptions,
  ],
  // Once more, because a driver may not know the option, or the user's `prepareDatabase` may have set it.
  greeting: `PRAGMA busy_timeout = ${BLOCKING_LIMIT_MS}`,
  isInProcess: true,
  socketOf: () => undefined,
  create: write,
  faultOf,
  on,
};

function faultOf(cause: unknown): Fault {
  const { code, message } = errorOf(cause);
  if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) return 'busy';
  if (code.startsWith('SQLITE_READONLY')) return 'forbidden';
  if (message.includes('database is locked')) return 'busy';
  if (message.includes('no such table')) return 'no table';
  if (message.includes('no such column') || message.includes('ON CONFLICT clause does not match'))
    return 'no column';
  return 'other';
}

function on(table: string): Statements {
  const look = `
SELECT CAST(${NOW} AS TEXT) AS store_time, l.holder, l.instance, CAST(l.version AS TEXT) AS version,
  CAST(l.expires_at AS TEXT) AS expires_at, CAST(l.acquired_at AS TEXT) AS acquired_at, CAST(l.tick AS TEXT) AS tick
FROM (SELECT 1) LEFT JOIN ${table} l ON l.key = ?`;

  /*
   * In: key, holder, instance, lease µs, tick ms or NULL, earliest and latest µs to claim it.
   * Out: one row with the version, if it granted.
   * One step, because a database has one writer at a time.
   */
  const grant = `
WITH asked AS (
  SELECT ? AS key, ? AS holder, ? AS instance, CAST(? AS INTEGER) AS lease, CAST(? AS INTEGER) AS tick,
    CAST(? AS INTEGER) AS earliest, CAST(? AS INTEGER) AS latest, ${NOW} AS now
)
INSERT INTO ${table} AS l (key, holder, instance, version, expires_at, acquired_at, tick)
SELECT a.key, a.holder, a.instance, a.now, a.now + a.lease, a.now, a.tick
FROM asked a LEFT JOIN ${table} s ON s.key = a.key
WHERE (s.holder = a.holder AND s.expires_at > a.now) OR a.tick IS NULL OR a.now BETWEEN a.earliest AND a.latest
${ON_CONFLICT_GRANT}
RETURNING CAST(version AS TEXT) AS granted`;

  /*
   * In: first what is set, then key, then holder or fencing token.
   * Out: one row, or none if there was nothing to change.
   * One step, because a database has one writer at a time.
   */
  const held = `key = ? AND holder = ? AND expires_at > ${NOW}`;
  const renew = `
UPDATE ${table} SET expires_at = max(expires_at, ${NOW} + CAST(? AS INTEGER)) WHERE ${held} RETURNING 1 AS changed`;
  const release = `UPDATE ${table} SET holder = NULL, expires_at = 0 WHERE ${held} RETURNING 1 AS changed`;
  const forceRelease = `
UPDATE ${table} SET holder = NULL, expires_at = 0
WHERE key = ? AND version = CAST(? AS INTEGER) AND expires_at > ${NOW} RETURNING 1 AS changed`;

  const lookAt = async (query: Query, key: string) => {
    const [row] = (await query(look, [key])) as [SeenColumns];
    return seenFrom(row);
  };

  return {
    async grant(query, request) {
      // Reading first keeps those who find the key taken from standing in the way of its holder's release.
      const seen = await lookAt(query, request.key);
      if (refusal(request, seen)) return { seen };
      // A row that was there may have been removed: a later ms makes sure that the token is above the forgotten one.
      if (!seen.row) await sleep(CLOCK_STEP_MS);
      const { instance, leaseUs, tickMs, earliestUs, latestUs } = askedOf(request);
      const [granted] = (await write(query, grant, [
        ...[request.key, request.holder, instance],
        ...[leaseUs, tickMs, earliestUs, latestUs],
      ])) as { granted: string }[];
      return granted ? { fencingToken: BigInt(granted.granted) } : { seen };
    },
    renew: (query, request) => didChange(query, renew, [leaseUsOf(request), request.key, request.holder]),
    release: (query, { key, holder }) => didChange(query, release, [key, holder]),
    forceRelease: (query, key, fencingToken) => didChange(query, forceRelease, [key, String(fencingToken)]),
    look: lookAt,
  };
}

async function didChange(query: Query, sql: string, parameters: readonly unknown[]): Promise<boolean> {
  return ((await write(query, sql, parameters)) as unknown[]).length === 1;
}

/**
 * Writes in a transaction that takes the lock first. libsql does not reset a statement that found the database busy,
 * and SQLite then commits no other statement by itself: it would answer that it wrote, and lose it. A transaction is
 * committed or it fails, and trying the same `BEGIN` again resets it.
 */
async function write(query: Query, sql: string, parameters: readonly unknown[] = []): Promise<unknown> {
  await query('BEGIN IMMEDIATE');
  try {
    const rows = await query(sql, parameters);
    await query('COMMIT');
    return rows;
  } catch (cause) {
    await query('ROLLBACK').catch(() => undefined); // Some errors have ended the transaction already.
    throw cause;
  }
}
