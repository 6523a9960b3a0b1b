import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import type { AcquireRequest } from '../../core/backend.js';
import { type Asked, askedOf, leaseUsOf } from './asked.js';
import type { Dialect, Fault, Query, Statements } from './dialect.js';
import { errorOf } from './error-of.js';
import { CONNECT_LIMIT_MS, MOST_CONNECTIONS, extraOf, masterOf, shorterOf, without } from './own-options.js';
import { type Granting, type Seen, type SeenColumns, refusal, seenFrom } from './seen.js';

/** The same in every session time zone, and the same everywhere in one statement: the time at which it began. */
const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

/** A key of 512 UTF-16 units of at most 3 bytes, a namespace of 64 of at most 9, and what joins them: at most 2120. */
const LONGEST_KEY_BYTES = 2_304;

const DUPLICATE_KEY = '1062';

const FAULTS: Readonly<Record<string, Fault>> = {
  1213: 'busy', // deadlock, and a lost certification on Galera
  1205: 'busy', // lock timeout
  1020: 'busy', // changed since the snapshot
  1146: 'no table',
  1054: 'no column',
  1044: 'forbidden',
  1142: 'forbidden',
};

/** MySQL from 8.0 and MariaDB from 10.5. */
export const mysql: Dialect = {
  columnTypes: {
    // Binary, because every collation of text takes some different texts for equal: `utf8mb4_bin` ignores spaces at the end.
    key: { type: 'varbinary', length: LONGEST_KEY_BYTES },
    holder: { type: 'varbinary', length: 255 },
    instance: { type: 'varchar', length: 255, charset: 'utf8mb4', collation: 'utf8mb4_bin' },
  },
  tableOptions: 'ENGINE=InnoDB',
  quote: (name) => `\`${name}\``,
  ownOptions: (options) => [ownOptions(options)],
  // A server may have turned autocommit off, and lets a statement wait 50 s for a row and a day or more for a table.
  greeting: `SET SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1`,
  socketOf: (connection) => (connection as { stream?: Socket }).stream,
  create: (query, ddl) => query(ddl),
  faultOf: (cause) => FAULTS[errorOf(cause).code] ?? 'other',
  on,
};

function ownOptions(options: DataSourceOptions): DataSourceOptions {
  const master = masterOf(options);
  const extra = extraOf(options);
  return {
    ...master,
    connectTimeout: shorterOf(CONNECT_LIMIT_MS, extra['connectTimeout'] ?? master['connectTimeout']),
    supportBigNumbers: true,
    bigNumberStrings: true,
    extra: {
      ...without(extra, ['connectTimeout', 'supportBigNumbers', 'bigNumberStrings']),
      connectionLimit: MOST_CONNECTIONS,
      waitForConnections: true,
      queueLimit: 0,
      resetOnRelease: false, // It would undo the greeting.
      flags: countingMatches(extra['flags'] ?? master['flags']),
    },
  } as unknown as DataSourceOptions;
}

/** Without FOUND_ROWS an UPDATE that changes no value counts as none, and a renewal as lost. */
const countingMatches = (flags: unknown): readonly string[] =>
  String((flags ?? '') as string | readonly string[])
    .toUpperCase()
    .split(/[\s,]+/)
    .filter((flag) => flag !== '' && flag !== '-FOUND_ROWS');

function on(table: string): Statements {
  /*
   * In: tick, instance, holder, lease µs, key, holder, tick, tick, earliest and latest µs to claim the tick.
   * Out: one row matched and its version as insertId, if it granted; no row if the key is taken, refused or new.
   * One step, because an UPDATE locks the row before it looks at the condition. Where that holds and the lease is
   * not over, the holder is the one who asks, so he keeps what he has. No column is read after it was assigned.
   */
  const grantAgain = `
UPDATE ${table} SET
  version = LAST_INSERT_ID(IF(expires_at > ${NOW}, version, GREATEST(version + 1, ${NOW}))),
  acquired_at = IF(expires_at > ${NOW}, acquired_at, ${NOW}),
  tick = IF(expires_at > ${NOW}, tick, COALESCE(?, tick)),
  instance = ?,
  holder = ?,
  expires_at = ${NOW} + ?
WHERE \`key\` = ? AND (
  (expires_at > ${NOW} AND holder = ?)
  OR (expires_at <= ${NOW} AND COALESCE(tick < ?, TRUE) AND (? IS NULL OR ${NOW} BETWEEN ? AND ?)))`;

  /*
   * In: key, holder, instance, lease µs, tick, tick, earliest and latest µs to claim the tick.
   * Out: one row and its version as insertId, if it granted; no row if it is not the time of the tick.
   * One step, because of two inserts of one key the second fails.
   */
  const grantFirst = `
INSERT INTO ${table} (\`key\`, holder, instance, version, expires_at, acquired_at, tick)
SELECT ?, ?, ?, LAST_INSERT_ID(${NOW}), ${NOW} + ?, ${NOW}, ?
FROM (SELECT 1) one WHERE ? IS NULL OR ${NOW} BETWEEN ? AND ?`;

  const look = `
SELECT CAST(${NOW} AS CHAR) AS store_time, l.holder, l.instance, CAST(l.version AS CHAR) AS version,
  CAST(l.expires_at AS CHAR) AS expires_at, CAST(l.acquired_at AS CHAR) AS acquired_at, CAST(l.tick AS CHAR) AS tick
FROM (SELECT 1) one LEFT JOIN ${table} l ON l.\`key\` = ?`;

  /*
   * In: first what is set, then key, then holder or fencing token.
   * Out: one row matched, or none.
   * One step, because an UPDATE locks the row before it looks at the condition.
   */
  const held = `\`key\` = ? AND holder = ? AND expires_at > ${NOW}`;
  const renew = `UPDATE ${table} SET expires_at = GREATEST(expires_at, ${NOW} + ?) WHERE ${held}`;
  const release = `UPDATE ${table} SET holder = NULL, expires_at = 0 WHERE ${held}`;
  const forceRelease = `
UPDATE ${table} SET holder = NULL, expires_at = 0
WHERE \`key\` = ? AND version = CAST(? AS SIGNED) AND expires_at > ${NOW}`;

  const lookAt = async (query: Query, key: string): Promise<Seen> => {
    const [row] = (await query(look, [bytes(key)])) as [SeenColumns];
    return seenFrom(row);
  };

  return {
    async grant(query, request): Promise<Granting> {
      const asked = askedOf(request);
      const again = tokenFrom(await query(grantAgain, againParameters(request, asked)));
      if (again !== undefined) return { fencingToken: again };
      const seen = await lookAt(query, request.key);
      if (seen.row || refusal(request, seen)) return { seen };
      const first = await unlessDuplicate(() => query(grantFirst, firstParameters(request, asked)));
      const fencingToken = first === undefined ? undefined : tokenFrom(first);
      return fencingToken === undefined ? { seen } : { fencingToken };
    },
    async renew(query, request) {
      return matches(await query(renew, [leaseUsOf(request), bytes(request.key), bytes(request.holder)]));
    },
    async release(query, { key, holder }) {
      return matches(await query(release, [bytes(key), bytes(holder)]));
    },
    async forceRelease(query, key, fencingToken) {
      return matches(await query(forceRelease, [bytes(key), String(fencingToken)]));
    },
    look: lookAt,
  };
}

const againParameters = (
  { key, holder }: AcquireRequest,
  { instance, leaseUs, tickMs, earliestUs, latestUs }: Asked,
) => [
  ...[tickMs, instance, bytes(holder), leaseUs],
  ...[bytes(key), bytes(holder), tickMs, tickMs, earliestUs, latestUs],
];

const firstParameters = (
  { key, holder }: AcquireRequest,
  { instance, leaseUs, tickMs, earliestUs, latestUs }: Asked,
) => [bytes(key), bytes(holder), instance, leaseUs, tickMs, tickMs, earliestUs, latestUs];

/** Text would be sent in the connection's character set, which may not know every character. */
const bytes = (text: string) => Buffer.from(text, 'utf8');

interface Outcome {
  readonly affectedRows: number | string;
  readonly insertId: number | string;
}

const matches = (outcome: unknown) => Number((outcome as Outcome).affectedRows) === 1;

const tokenFrom = (outcome: unknown): bigint | undefined =>
  matches(outcome) ? BigInt((outcome as Outcome).insertId) : undefined;

async function unlessDuplicate<T>(insert: () => Promise<T>): Promise<T | undefined> {
  try {
    return await insert();
  } catch (cause) {
    if (errorOf(cause).code === DUPLICATE_KEY) return undefined;
    throw cause;
  }
}
