import type { EntityManager, ObjectLiteral, UpdateQueryBuilder } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { type Fence, staleTokenError } from '../../../core/fence.js';
import {
  describeRows,
  durableCommitCondition,
  isInProcess,
  isInTransaction,
  isMysql,
  newestRowsOptions,
} from './database.js';
import {
  type FencedRows,
  ROWS_PARAMETER,
  TOKEN_PARAMETER,
  tokenCastsOf,
  tokenParameter,
} from './fenced-rows.js';
import { runCheckedTransaction } from './transactions/checked-transaction.js';
import { retryOnConflict } from './transactions/conflict-retry.js';
import { recordTransactionOf } from './transactions/recorded-transaction.js';
import { executeRepeatedUpdate, throwListenerCause, throwListenerError } from './update-listeners.js';

/** The rows of a fenced read or write, and the lock with its token. */
export interface FencedRequest {
  readonly rows: FencedRows;
  readonly where: object;
  readonly token: bigint;
  readonly lock: Fence;
  /** Nothing is written if several rows match. */
  readonly needsSingleRow?: boolean;
}

/**
 * Writes the values and the token into all rows that match, or into none if one of them has a newer token.
 *
 * @returns `false` if no row matches
 * @throws LockLostError if one of the rows has a newer token
 * @throws LockConfigError if several rows match although the request needs a single one
 */
export function writeFenced(
  manager: EntityManager,
  request: FencedRequest,
  values: object,
): Promise<boolean> {
  recordTransactionOf(manager, request.lock);
  return retryOnConflict(manager, () => {
    // In a transaction of MySQL, a subscriber that reads before the UPDATE would decide what all later reads see. So the row is locked first.
    const locksFirst = isMysql(manager) && isInTransaction(manager);
    if (request.rows.isSingleRow(request.where) && !locksFirst) return writeOne(manager, request, values);
    if (isInProcess(manager)) return writeAllInOneStatement(manager, request, values);
    if (isInTransaction(manager)) return writeAll(manager, request, values);
    return writeAllInTransaction(manager, request, values);
  }).catch(throwListenerCause);
}

function writeOne(manager: EntityManager, request: FencedRequest, values: object): Promise<boolean> {
  return executeRepeatedUpdate(manager, buildUpdate(manager, request, values), async (isCounted) => {
    if (isCounted) return true;
    const newestToken = await checkNewestToken(manager, request);
    return newestToken === request.token && isMysql(manager) && countsChangesOnly(manager);
  });
}

async function writeAllInTransaction(
  manager: EntityManager,
  request: FencedRequest,
  values: object,
): Promise<boolean> {
  let isCommitted = false as boolean;
  const onFailedAfterCommit = () => void (isCommitted = true);
  const name = `the fenced write of ${request.rows.name}`;
  try {
    return await runCheckedTransaction(manager, { name, onFailedAfterCommit }, (inner) =>
      writeAll(inner, request, values),
    );
  } catch (cause) {
    if (isCommitted) throwListenerError(cause);
    throw cause;
  }
}

/**
 * Locks all rows before it writes one, so that an error leaves nothing to undo, even if the caller continues its transaction.
 * A savepoint instead would also undo what the caller does meanwhile. Writes only the locked rows: a row that begins to match
 * meanwhile could have a newer token.
 */
async function writeAll(manager: EntityManager, request: FencedRequest, values: object): Promise<boolean> {
  const { rows, where, token, lock, needsSingleRow } = request;
  const write = buildUpdate(manager, request, values);
  const found = await lockedRows(manager, request);
  if (needsSingleRow && found.length > 1) throw severalRowsError(request);
  const newestToken = found.reduce((one, { token }) => (one > token ? one : token), 0n);
  if (newestToken > token) throw staleTokenError(lock, describeRows(rows.name, where), newestToken);
  if (found.length === 0) return false;
  const isLocked = isMysql(manager) ? `IN (:...${ROWS_PARAMETER})` : `= ANY(:${ROWS_PARAMETER})`;
  if (rows.idColumns.length > 0) {
    const ids = rows.idColumns.map((name) => write.escape(name));
    write.andWhere(`${idText(manager, ids)} ${isLocked}`, { [ROWS_PARAMETER]: found.map(({ id }) => id) });
  }
  // A trigger of PostgreSQL may leave rows unwritten. MySQL may not count a row whose values do not change.
  return executeRepeatedUpdate(manager, write, (isCounted) => isCounted || isMysql(manager));
}

/**
 * Locks the rows that match against writes of others until the transaction ends: all of them, or the first two if one is needed.
 * A table without an entity has no ids.
 */
async function lockedRows(manager: EntityManager, { rows, where, needsSingleRow }: FencedRequest) {
  const query = manager.createQueryBuilder().from(rows.target, 'fenced').withDeleted();
  const column = `${query.escape('fenced')}.${query.escape(rows.tokenColumn)}`;
  query.select(`CAST(${column} AS ${tokenCastsOf(manager).asText})`, 'token');
  const ids = rows.idColumns.map((name) => `${query.escape('fenced')}.${query.escape(name)}`);
  if (ids.length > 0) query.addSelect(idText(manager, ids), 'id');
  rows.addConditions(query, where);
  query.setLock(isMysql(manager) ? 'pessimistic_write' : 'for_no_key_update');
  // In MySQL a SELECT without a limit has the one of the session (sql_select_limit), and would leave out rows.
  if (isMysql(manager)) query.limit(Number.MAX_SAFE_INTEGER);
  if (needsSingleRow) query.limit(2);
  const found = await query.cache(false).getRawMany<{ token: string | null; id?: string }>();
  return found.map(({ token, id }) => ({ token: BigInt(token ?? 0), id }));
}

/** An id as one text, made by the database: drivers round the values of some types. */
const idText = (manager: EntityManager, columns: readonly string[]): string =>
  isMysql(manager)
    ? `CONCAT_WS(',', ${columns.map((column) => `HEX(${column})`).join(', ')})`
    : `CAST(ROW(${columns.join(', ')}) AS TEXT)`;

/**
 * For SQLite, where one statement suffices: SQLite has one writer at a time, so the statement sees all rows unchanged. A
 * transaction would include what other callers do meanwhile on TypeORM's only connection.
 */
async function writeAllInOneStatement(
  manager: EntityManager,
  request: FencedRequest,
  values: object,
): Promise<boolean> {
  const refusals = [buildTokenQuery(manager, request, '>')];
  if (request.needsSingleRow) refusals.push(buildSecondRowQuery(manager, request));
  // Built from the same condition, so the parameters of one name have the same value.
  const parameters = Object.assign({}, ...refusals.map((query) => query.getParameters())) as ObjectLiteral;
  const query = buildUpdate(manager, request, values, parameters);
  for (const refusal of refusals) query.andWhere(`NOT EXISTS (${refusal.getQuery()})`);
  if (await executeRepeatedUpdate(manager, query, (isCounted) => isCounted)) return true;
  if (request.needsSingleRow && (await buildSecondRowQuery(manager, request).getRawOne()))
    throw severalRowsError(request);
  await checkNewestToken(manager, request);
  return false;
}

const severalRowsError = ({ rows, where }: FencedRequest) =>
  new LockConfigError(
    `Expected a condition that one row meets, got ${describeRows(rows.name, where)}, which several do. Name the row by its id.`,
  );

/** Finds a row if at least two match. */
function buildSecondRowQuery(manager: EntityManager, { rows, where }: FencedRequest) {
  const query = manager.createQueryBuilder().from(rows.target, 'fenced').withDeleted();
  query.select('1', 'found').limit(1).offset(1).cache(false);
  rows.addConditions(query, where);
  return query;
}

function buildUpdate(
  manager: EntityManager,
  { rows, where, token }: FencedRequest,
  values: object,
  /** Set before the condition, so that TypeORM gives the parameters of the condition other names. */
  parameters: ObjectLiteral = {},
): UpdateQueryBuilder<ObjectLiteral> {
  const query = manager.createQueryBuilder().update(rows.target).setParameters(parameters);
  rows.setWithToken(query, values, String(token));
  const column = query.escape(rows.tokenColumn);
  query.where(`(${column} IS NULL OR ${column} <= ${tokenParameter(manager)})`, {
    [TOKEN_PARAMETER]: String(token),
  });
  query.andWhere(durableCommitCondition(manager));
  rows.addConditions(query, where);
  return query;
}

/**
 * Returns the newest token among the rows, or `undefined` if all are older than the lock's token.
 *
 * @throws LockLostError if it is newer than the lock's token
 */
export async function checkNewestToken(
  manager: EntityManager,
  request: FencedRequest,
): Promise<bigint | undefined> {
  const query = buildTokenQuery(manager, request, '>=');
  const { lock } = newestRowsOptions(manager);
  if (lock) query.setLock(lock.mode);
  const row = await query.cache(false).getRawOne<{ newest: string }>();
  const newestToken = row && BigInt(row.newest);
  const { rows, where, token } = request;
  if (newestToken !== undefined && newestToken > token)
    throw staleTokenError(request.lock, describeRows(rows.name, where), newestToken);
  return newestToken;
}

function buildTokenQuery(
  manager: EntityManager,
  { rows, where, token }: FencedRequest,
  comparison: '>' | '>=',
) {
  const query = manager.createQueryBuilder().from(rows.target, 'fenced').withDeleted();
  const column = `${query.escape('fenced')}.${query.escape(rows.tokenColumn)}`;
  const { asText } = tokenCastsOf(manager);
  query
    .select(`CAST(${column} AS ${asText})`, 'newest')
    .where(`${column} ${comparison} ${tokenParameter(manager)}`, { [TOKEN_PARAMETER]: String(token) })
    .orderBy(column, 'DESC')
    .limit(1);
  rows.addConditions(query, where);
  return query;
}

/** The used part of a connection of `mysql2` or `mysql`. */
interface MysqlConnection {
  readonly config?: { readonly clientFlags?: number };
}

/** The flag FOUND_ROWS of the protocol. */
const FOUND_ROWS = 2;

/**
 * Whether an update does not count a row whose values do not change: on MySQL, if the connection was opened without FOUND_ROWS.
 * By default the driver asks for it. The options of a data source have several places that change it, so they are not read.
 */
async function countsChangesOnly({ queryRunner }: EntityManager): Promise<boolean> {
  const { config } = (await queryRunner?.connect()) as MysqlConnection;
  return ((config?.clientFlags ?? 0) & FOUND_ROWS) === 0;
}
