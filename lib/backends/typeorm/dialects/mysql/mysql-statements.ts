import { randomInt } from 'node:crypto';
import type { AcquireRequest, AcquisitionId, RenewRequest } from '../../../../core/backend.js';
import { unknownResult } from '../../../../core/unknown-result.js';
import {
  type LockRowColumns,
  type LockRowSnapshot,
  isHeldBy,
  microseconds,
  releaseResultFrom,
  snapshotFrom,
  takenResultFrom,
  textFrom,
  toRequestRow,
} from '../../table/lock-row.js';
import type { Table } from '../../table/table-definition.js';
import { type Acquisitions, type Statements, driverErrorOf } from '../dialect.js';
import type { Session } from '../../connections/session.js';
import { type Values, statementBuilder } from '../../statements/named-parameters.js';
import { createCommonStatements } from '../../statements/common-statements.js';
import { idleRemoval } from './mysql-idle-removal.js';
import { bytes, heldParametersOf, padToBucketSize, sortedByKey } from './mysql-keys.js';
import { type Outcome, type RunStatement, SYNTAX_ERROR } from './statement-types.js';
import { mysqlCommonTexts, mysqlTexts } from './mysql-sql.js';

type Row = LockRowColumns & { readonly key: Buffer };

/** The time at which a row was missing does not matter. */
const NO_ROW: LockRowSnapshot = { nowUs: 0 };

/** `returning`: the database supports `INSERT … RETURNING`, as MariaDB does. */
export function createMysqlStatements({ inSql }: Table, { returning }: { returning: boolean }): Statements {
  const statementOf = statementBuilder({ constants: { table: inSql } });
  /** The limit is in the text: mysql2 may send a number as a DOUBLE, which MySQL from 8.0.22 on refuses as a limit. */
  const listStatement = ({ limit }: Values) =>
    statementOf(`list ${Number(limit)}`, () =>
      mysqlCommonTexts.list.replace(':limit', String(Number(limit))),
    );
  const run: RunStatement = ({ query }, name, keyCount, parameters) =>
    query(statementOf(`${name} ${keyCount}`, () => mysqlTexts[name](keyCount)).sql, parameters);
  return {
    ...createCommonStatements(async ({ query }, name, values) => {
      const { sql, parametersFrom } =
        name === 'list' ? listStatement(values) : statementOf(name, () => mysqlCommonTexts[name]);
      return rowsFrom(await query(sql, parametersFrom(withBytes(values))));
    }),
    ...acquisitions(run, returning),
    renew: (session, requests) => renew(session, run, requests),
    release: (session, requests) => release(session, run, requests),
    async readRows(session, keys) {
      const snapshots = await snapshotsByKey(session, run, keys);
      return keys.map((key) => snapshots.get(key) ?? NO_ROW);
    },
    ...idleRemoval(run),
  };
}

/** An update returns no rows, but how many it has changed. */
function rowsFrom(result: unknown): readonly unknown[] {
  if (Array.isArray(result)) return result;
  const { affectedRows, insertId } = result as Outcome;
  return Number(affectedRows) > 0 ? [{ version: insertId, others_wait: Number(insertId) !== 0 }] : [];
}

const withBytes = (values: Values): Values =>
  Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, typeof value === 'string' ? bytes(value) : value]),
  );

function acquisitions(run: RunStatement, returning: boolean): Pick<Statements, 'acquire'> {
  let canReturn = returning;
  const grantRows = async (session: Session, keys: readonly Buffer[], parameters: readonly unknown[]) => {
    if (canReturn) {
      try {
        return (await run(session, 'grantReturning', keys.length, parameters)) as readonly Row[];
      } catch (cause) {
        if (driverErrorOf(cause).code !== SYNTAX_ERROR) throw cause;
        canReturn = false; // The data source says MariaDB, but the server is MySQL.
      }
    }
    await run(session, 'grant', keys.length, parameters);
    return readRows(session, run, keys);
  };
  return {
    async acquire(session, requests, notAfterUs) {
      const padded = padToBucketSize(sortedByKey(requests));
      const parameters = padded.flatMap((request) => grantParametersOf(request, notAfterUs));
      const keys = padded.map(({ key }) => bytes(key));
      if (requests.length > 1) return acquisitionsFrom(requests, await grantRows(session, keys, parameters));
      const { insertId } = (await run(session, 'grant', 1, parameters)) as Outcome;
      const fencingToken = BigInt(insertId);
      if (fencingToken > 0n) return { results: [{ kind: 'granted', fencingToken }] };
      return acquisitionsFrom(requests, await readRows(session, run, keys));
    },
  };
}

function grantParametersOf(request: AcquireRequest, notAfterUs: number): readonly unknown[] {
  const row = toRequestRow(request, notAfterUs);
  const { key, holder, instance, leaseUs, tokenCount, retryWithinUs, latestUs } = row;
  const texts = [bytes(key), bytes(holder), bytes(instance)];
  return [...texts, latestUs, tokenCount, leaseUs, leaseUs, retryWithinUs];
}

const readRows = async (session: Session, run: RunStatement, keys: readonly Buffer[]) =>
  (await run(session, 'readRows', keys.length, keys)) as readonly Row[];

async function snapshotsByKey(session: Session, run: RunStatement, keys: readonly string[]) {
  return snapshotsFrom(await readRows(session, run, padToBucketSize(keys.map(bytes))));
}

const snapshotsFrom = (rows: readonly Row[]) =>
  new Map(rows.map((row) => [textFrom(row.key), snapshotFrom(row)]));

function acquisitionsFrom(requests: readonly AcquireRequest[], rows: readonly Row[]): Acquisitions {
  const snapshots = snapshotsFrom(rows);
  const results = requests.map((request) => {
    const snapshot = snapshots.get(request.key);
    if (!snapshot?.row) return undefined;
    return isHeldBy(request.holder, snapshot)
      ? ({ kind: 'granted', fencingToken: snapshot.row.fencingToken } as const)
      : takenResultFrom(request, snapshot);
  });
  return { nowUs: rows[0] && Number(textFrom(rows[0].store_time)), results };
}

/** One statement for each length of the leases. */
async function renew(
  session: Session,
  run: RunStatement,
  requests: readonly RenewRequest[],
): ReturnType<Statements['renew']> {
  const renewed = new Set<RenewRequest>();
  for (const leaseMs of new Set(requests.map((request) => request.leaseMs))) {
    const withSameLease = requests.filter((request) => request.leaseMs === leaseMs);
    for (const request of await renewWithSameLease(session, run, withSameLease)) renewed.add(request);
  }
  return requests.map((request) => ({ kind: renewed.has(request) ? 'renewed' : 'lost' }));
}

async function renewWithSameLease(session: Session, run: RunStatement, requests: readonly RenewRequest[]) {
  const { count, values } = heldParametersOf(requests);
  const leaseUs = microseconds(requests[0]?.leaseMs ?? 0);
  const { affectedRows } = (await run(session, 'renew', count, [leaseUs, ...values])) as Outcome;
  if (Number(affectedRows) === requests.length) return requests;
  if (Number(affectedRows) === 0) return [];
  // A holder that holds its key now also held it during the UPDATE, because no holder is granted a key twice. So its lease
  // was renewed.
  const snapshots = await snapshotsByKey(
    session,
    run,
    requests.map(({ key }) => key),
  );
  return requests.filter(({ key, holder }) => {
    const snapshot = snapshots.get(key);
    return snapshot && isHeldBy(holder, snapshot);
  });
}

async function release(
  session: Session,
  run: RunStatement,
  requests: readonly AcquisitionId[],
): ReturnType<Statements['release']> {
  const mark = requests.length === 1 ? 0 : randomInt(1, 2 ** 47);
  const { count, values } = heldParametersOf(requests);
  const { affectedRows, insertId } = (await run(session, 'release', count, [mark, ...values])) as Outcome;
  const releasedCount = Number(affectedRows);
  const hasWaiters = Number(insertId) !== 0;
  if (releasedCount === 0) return requests.map(() => releaseResultFrom(undefined));
  if (requests.length === 1 || (!hasWaiters && releasedCount === requests.length))
    return requests.map(() => releaseResultFrom(hasWaiters));
  const keys = padToBucketSize(requests.map(({ key }) => bytes(key)));
  try {
    const rows = (await run(session, 'readReleased', keys.length, keys)) as ReleasedRow[];
    return releaseResultsFrom({ requests, releasedCount, mark }, rows);
  } catch (cause) {
    // The keys were released all the same; repeating the release would return `gone`.
    if (releasedCount === requests.length) return requests.map(() => releaseResultFrom(true));
    return requests.map(() => unknownResult(cause));
  }
}

/** A row as it is read after several grants were released. */
interface ReleasedRow {
  readonly key: Buffer;
  readonly expires_at: string;
  readonly waiting_until: string | null;
}

interface Release {
  readonly requests: readonly AcquisitionId[];
  /** How many rows the statement has released. */
  readonly releasedCount: number;
  /** A random number. The statement has set `expires_at` of each released row to its negative. */
  readonly mark: number;
}

/**
 * Which grants were released: those whose row has the mark of this release, and those whose key was acquired again since.
 * If the count does not show which are the latter, their result is `unknown`.
 */
function releaseResultsFrom({ requests, releasedCount, mark }: Release, rows: readonly ReleasedRow[]) {
  const marked = new Map(
    rows.filter((row) => Number(row.expires_at) === -mark).map((row) => [textFrom(row.key), row]),
  );
  const retaken = releasedCount - marked.size;
  const isCertain = retaken === 0 || retaken === requests.length - marked.size;
  return requests.map(({ key }) => {
    const row = marked.get(key);
    if (row) return releaseResultFrom(row.waiting_until !== null);
    if (!isCertain) return unknownResult(new Error('the key has been acquired again since'));
    return releaseResultFrom(retaken === 0 ? undefined : false);
  });
}
