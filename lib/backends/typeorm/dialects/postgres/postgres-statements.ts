import type { AcquireRequest } from '../../../../core/backend.js';
import {
  type GrantOutcome,
  type LockRowColumns,
  type RequestRow,
  expectedValuesOf,
  microseconds,
  releaseResultFrom,
  snapshotFrom,
  toRequestRow,
} from '../../table/lock-row.js';
import { type Session, type Statements, type Table, driverErrorOf } from '../dialect.js';
import { createRowStatements } from '../row-statements.js';
import { notifyCall, postgresSql } from './postgres-sql.js';

/** Program limit exceeded; among others, the queue of NOTIFY is full because a listener does not read. */
const LIMIT_EXCEEDED = '54000';

interface GrantedRow {
  readonly version: string;
  readonly now: string;
}

interface ReleasedRow {
  readonly key: string;
  readonly others_wait: boolean;
}

type GrantManyRow = LockRowColumns & { readonly key: string | null; readonly granted: string | null };

type Sql = ReturnType<typeof postgresSql>;

/** Runs the statements of `postgres-sql.ts`. */
export function createPostgresStatements(table: Table): Statements {
  const sql = postgresSql(table);
  return {
    ...createRowStatements(sql, (text) => text),
    ...leases(sql),
    ...releases(sql, notifyCall(table)),
    ...ticks(sql),
  };
}

const leases = (sql: Sql): Pick<Statements, 'acquire' | 'renew'> => ({
  async acquire(session, requests, notAfterUs) {
    const rows = requests.map((request) => toRequestRow(request, notAfterUs));
    const [first, second] = rows;
    const granted = first && !second && (await tryGrantOne(session, sql, first));
    if (granted) return granted;
    const found = await session.query(sql.grantMany, [
      textArray(rows.map(({ key }) => key)),
      textArray(rows.map(({ holder }) => holder)),
      textArray(rows.map(({ instance }) => instance)),
      numberArray(rows.map(({ leaseUs }) => leaseUs)),
      numberArray(rows.map(({ tokenCount }) => tokenCount)),
      numberArray(rows.map(({ retryWithinUs }) => retryWithinUs)),
      numberArray(rows.map(({ latestUs }) => latestUs)),
    ]);
    return grantOutcomesFrom(requests, found as [GrantManyRow, ...GrantManyRow[]]);
  },
  async renew({ query }, requests) {
    const renewed = (await query(sql.renew, [
      textArray(requests.map(({ key }) => key)),
      textArray(requests.map(({ holder }) => holder)),
      numberArray(requests.map(({ leaseMs }) => microseconds(leaseMs))),
    ])) as { readonly key: string }[];
    const keys = new Set(renewed.map(({ key }) => key));
    return requests.map(({ key }) => ({ kind: keys.has(key) ? 'renewed' : 'lost' }));
  },
});

/** A fast path: for a single free key it takes half the time of `grantMany`. */
async function tryGrantOne({ query }: Session, sql: Sql, row: RequestRow) {
  const { key, holder, instance, leaseUs, tokenCount, latestUs } = row;
  const parameters = [key, holder, instance, leaseUs, tokenCount, latestUs];
  const [granted] = (await query(sql.grantOne, parameters)) as GrantedRow[];
  return granted && { nowUs: Number(granted.now), outcomes: [{ fencingToken: BigInt(granted.version) }] };
}

function releases(
  sql: Sql,
  notify: string,
): Pick<Statements, 'release' | 'forceRelease' | 'releaseEndedRun'> {
  /** A full queue of NOTIFY rolls the release back, so it is repeated without a notification: waiters also retry on their own. */
  const execute = async ({ query }: Session, text: string, parameters: readonly unknown[]) => {
    try {
      return (await query(text, parameters)) as ReleasedRow[];
    } catch (cause) {
      if (driverErrorOf(cause).code !== LIMIT_EXCEEDED) throw cause;
      return (await query(text.replace(notify, 'NULL::text'), parameters)) as ReleasedRow[];
    }
  };
  return {
    async release(session, claims) {
      const [first, second] = claims;
      const keys = textArray(claims.map(({ key }) => key));
      const holders = textArray(claims.map(({ holder }) => holder));
      const released = await (first && !second
        ? execute(session, sql.releaseOne, [first.key, first.holder])
        : execute(session, sql.releaseMany, [keys, holders]));
      const hasWaitersByKey = new Map(released.map((row) => [row.key, row.others_wait]));
      return claims.map(({ key }) => releaseResultFrom(hasWaitersByKey.get(key)));
    },
    async forceRelease(session, key, fencingToken) {
      return (await execute(session, sql.forceRelease, [key, String(fencingToken)])).length === 1;
    },
    async releaseEndedRun(session, { key, holder }) {
      const [released] = await execute(session, sql.releaseEndedRun, [key, holder]);
      return releaseResultFrom(released?.others_wait);
    },
  };
}

const ticks = (sql: Sql): Pick<Statements, 'claim' | 'register'> => ({
  async claim({ query }, request, { row, attempt, notAfterUs }) {
    const { key, holder, instance, tokenCount, leaseUs, latestUs } = toRequestRow(request, notAfterUs);
    const grant = [key, holder, instance, tokenCount, leaseUs, request.tick?.tickMs, attempt, latestUs];
    const granted = await query(sql.claim, [...grant, ...expectedValuesOf(row)]);
    const [grantedRow] = granted as Pick<GrantedRow, 'version'>[];
    return grantedRow && BigInt(grantedRow.version);
  },
  async register({ query }, key, tickMs) {
    return ((await query(sql.register, [key, tickMs])) as unknown[]).length === 1;
  },
});

function grantOutcomesFrom(
  requests: readonly AcquireRequest[],
  [clock, ...rows]: readonly [GrantManyRow, ...GrantManyRow[]],
) {
  const outcomes = new Map<string, GrantOutcome>();
  const holders = new Map(requests.map(({ key, holder }) => [key, holder]));
  for (const row of rows) {
    const key = String(row.key);
    if (row.granted === null) outcomes.set(key, outcomes.get(key) ?? { snapshot: snapshotFrom(row) });
    else if (row.holder === holders.get(key)) outcomes.set(key, { fencingToken: BigInt(row.granted) });
  }
  return { nowUs: Number(clock.store_time), outcomes: requests.map(({ key }) => outcomes.get(key)) };
}

/** The text form of an array of PostgreSQL. */
const textArray = (values: readonly string[]) =>
  `{${values.map((value) => `"${value.replace(/["\\]/g, '\\$&')}"`).join()}}`;

const numberArray = (values: readonly (number | null)[]) =>
  `{${values.map((value) => value ?? 'NULL').join()}}`;
