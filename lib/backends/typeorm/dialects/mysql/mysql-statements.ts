import { randomInt } from 'node:crypto';
import {
  type AcquireRequest,
  type Claim,
  type RenewRequest,
  unknownResult,
} from '../../../../core/backend.js';
import {
  type GrantOutcome,
  type LockRowColumns,
  expectedValuesOf,
  microseconds,
  releaseResultFrom,
  snapshotFrom,
  textFrom,
  toRequestRow,
} from '../../table/lock-row.js';
import { type Session, type Statements, type Table, driverErrorOf } from '../dialect.js';
import { createRowStatements } from '../row-statements.js';
import {
  bytes,
  claimParametersOf,
  grantParametersOf,
  padToBucketSize,
  sortedByKey,
} from './mysql-parameters.js';
import { mysqlSql } from './mysql-sql.js';

const SYNTAX_ERROR = '1064';

interface Outcome {
  readonly affectedRows: number | string;
  readonly insertId: number | string;
}

type Row = LockRowColumns & { readonly key: Buffer };

type Sql = ReturnType<typeof mysqlSql>;

/** Runs the statements of `mysql-sql.ts`. `returning`: the database supports `INSERT … RETURNING`, as MariaDB does. */
export function createMysqlStatements({ inSql }: Table, { returning }: { returning: boolean }): Statements {
  const sql = mysqlSql(inSql);
  return {
    ...createRowStatements(sql, bytes),
    ...grants(sql, returning),
    renew: (session, requests) => renew(session, sql, requests),
    ...releases(sql),
    ...ticks(sql),
  };
}

function grants(sql: Sql, returning: boolean): Pick<Statements, 'acquire'> {
  let canReturn = returning;
  const grantRows = async (session: Session, keys: readonly Buffer[], parameters: readonly unknown[]) => {
    if (canReturn) {
      try {
        return (await session.query(sql.grantReturning(keys.length), parameters)) as readonly Row[];
      } catch (cause) {
        if (driverErrorOf(cause).code !== SYNTAX_ERROR) throw cause;
        canReturn = false; // The data source says MariaDB, but the server is MySQL.
      }
    }
    await session.query(sql.grant(keys.length), parameters);
    return readRows(session, sql, keys);
  };
  return {
    async acquire(session, requests, notAfterUs) {
      const padded = padToBucketSize(sortedByKey(requests));
      const parameters = padded.flatMap((request) => grantParametersOf(request, notAfterUs));
      const keys = padded.map(({ key }) => bytes(key));
      if (requests.length > 1) return grantOutcomesFrom(requests, await grantRows(session, keys, parameters));
      const { insertId } = (await session.query(sql.grant(1), parameters)) as Outcome;
      const fencingToken = BigInt(insertId);
      if (fencingToken > 0n) return { outcomes: [{ fencingToken }] };
      return grantOutcomesFrom(requests, await readRows(session, sql, keys));
    },
  };
}

const readRows = async ({ query }: Session, sql: Sql, keys: readonly Buffer[]) =>
  (await query(sql.readRows(keys.length), keys)) as readonly Row[];

const isHeld = ({ expires_at, store_time }: Row) => Number(expires_at) > Number(store_time);

function grantOutcomesFrom(requests: readonly AcquireRequest[], rows: readonly Row[]) {
  const rowsByKey = new Map(rows.map((row) => [textFrom(row.key), row]));
  const outcomes = requests.map(({ key, holder }): GrantOutcome => {
    const row = rowsByKey.get(key);
    if (!row) return undefined;
    const isOurs = isHeld(row) && textFrom(row.holder) === holder;
    return isOurs ? { fencingToken: BigInt(textFrom(row.version)) } : { snapshot: snapshotFrom(row) };
  });
  return { nowUs: rows[0] && Number(textFrom(rows[0].store_time)), outcomes };
}

/** One statement for each length of the leases. */
async function renew(
  session: Session,
  sql: Sql,
  requests: readonly RenewRequest[],
): ReturnType<Statements['renew']> {
  const renewed = new Set<RenewRequest>();
  for (const leaseMs of new Set(requests.map((request) => request.leaseMs))) {
    const withSameLease = requests.filter((request) => request.leaseMs === leaseMs);
    for (const request of await renewWithSameLease(session, sql, withSameLease)) renewed.add(request);
  }
  return requests.map((request) => ({ kind: renewed.has(request) ? 'renewed' : 'lost' }));
}

async function renewWithSameLease(session: Session, sql: Sql, requests: readonly RenewRequest[]) {
  const { count, values } = claimParametersOf(requests);
  const leaseUs = microseconds(requests[0]?.leaseMs ?? 0);
  const { affectedRows } = (await session.query(sql.renew(count), [leaseUs, ...values])) as Outcome;
  if (Number(affectedRows) === requests.length) return requests;
  if (Number(affectedRows) === 0) return [];
  // A holder that holds its key now also held it during the UPDATE, because no holder is granted a key twice. So its lease
  // was renewed.
  const rows = await readRows(session, sql, padToBucketSize(requests.map(({ key }) => bytes(key))));
  const holders = new Map(rows.filter(isHeld).map((row) => [textFrom(row.key), textFrom(row.holder)]));
  return requests.filter(({ key, holder }) => holders.get(key) === holder);
}

const releases = (sql: Sql): Pick<Statements, 'release' | 'forceRelease' | 'releaseEndedRun'> => ({
  async release({ query }, claims) {
    const mark = claims.length === 1 ? 0 : randomInt(1, 2 ** 47);
    const { count, values } = claimParametersOf(claims);
    const { affectedRows, insertId } = (await query(sql.release(count), [mark, ...values])) as Outcome;
    const releasedCount = Number(affectedRows);
    const hasWaiters = Number(insertId) !== 0;
    if (releasedCount === 0) return claims.map(() => releaseResultFrom(undefined));
    if (claims.length === 1 || (!hasWaiters && releasedCount === claims.length))
      return claims.map(() => releaseResultFrom(hasWaiters));
    const keys = padToBucketSize(claims.map(({ key }) => bytes(key)));
    try {
      const rows = (await query(sql.readReleased(keys.length), keys)) as ReleasedRow[];
      return releaseResultsFrom({ claims, releasedCount, mark }, rows);
    } catch (cause) {
      // The keys were released all the same; repeating the release would return `gone`.
      if (releasedCount === claims.length) return claims.map(() => releaseResultFrom(true));
      return claims.map(() => unknownResult(cause));
    }
  },
  async forceRelease({ query }, key, fencingToken) {
    const outcome = await query(sql.forceRelease, [bytes(key), String(fencingToken)]);
    return Number((outcome as Outcome).affectedRows) === 1;
  },
  async releaseEndedRun({ query }, { key, holder }) {
    const outcome = await query(sql.releaseEndedRun, [0, bytes(key), bytes(holder)]);
    const { affectedRows, insertId } = outcome as Outcome;
    return releaseResultFrom(Number(affectedRows) === 0 ? undefined : Number(insertId) !== 0);
  },
});

/** A row as it is read after several claims were released. */
interface ReleasedRow {
  readonly key: Buffer;
  readonly expires_at: string;
  readonly waiting_until: string | null;
}

interface Release {
  readonly claims: readonly Claim[];
  /** How many rows the statement has released. */
  readonly releasedCount: number;
  /** A random number. The statement has set `expires_at` of each released row to its negative. */
  readonly mark: number;
}

/**
 * Which claims were released: those whose row has the mark of this release, and those whose key was acquired again since.
 * If the count does not show which claims are the latter, their result is `unknown`.
 */
function releaseResultsFrom({ claims, releasedCount, mark }: Release, rows: readonly ReleasedRow[]) {
  const marked = new Map(
    rows.filter((row) => Number(row.expires_at) === -mark).map((row) => [textFrom(row.key), row]),
  );
  const retaken = releasedCount - marked.size;
  const isCertain = retaken === 0 || retaken === claims.length - marked.size;
  return claims.map(({ key }) => {
    const row = marked.get(key);
    if (row) return releaseResultFrom(row.waiting_until !== null);
    if (!isCertain) return unknownResult(new Error('the key has been acquired again since'));
    return releaseResultFrom(retaken === 0 ? undefined : false);
  });
}

const ticks = (sql: Sql): Pick<Statements, 'claim' | 'register'> => ({
  async claim({ query }, request, { row, attempt, notAfterUs }) {
    const { key, holder, instance, leaseUs, tokenCount, latestUs } = toRequestRow(request, notAfterUs);
    const grant = [bytes(holder), bytes(instance), tokenCount, leaseUs, request.tick?.tickMs, attempt];
    const outcome = await query(sql.claim, [...grant, bytes(key), latestUs, ...expectedValuesOf(row)]);
    const { affectedRows, insertId } = outcome as Outcome;
    return Number(affectedRows) === 1 ? BigInt(insertId) : undefined;
  },
  async register({ query }, key, tickMs) {
    const outcome = await query(sql.register, [tickMs, bytes(key)]);
    return Number((outcome as Outcome).affectedRows) === 1;
  },
});
