import type { EntityManager, QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../../core/errors.js';
import { type Database, dataSourceOf, isInProcess, isMysql, managerOf } from '../database.js';
import { guardOf } from './runner-guard.js';

/**
 * Does the work on the connection of the caller's transaction, or on a connection to the primary: a replica that lags behind
 * would return old rows.
 *
 * @throws LockConfigError if `database` is not a supported one, or a pooled connection has an open transaction
 */
export async function onPrimary<T>(
  database: Database,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  const manager = managerOf(database);
  if (manager.queryRunner) return guardOf(manager.queryRunner).run(() => work(manager));
  const runner = dataSourceOf(manager).createQueryRunner('master');
  if (isInProcess(manager)) return guardOf(runner).runOutsideOtherTransactions(() => work(runner.manager));
  try {
    if (isMysql(manager)) return await withAutocommit(runner, () => work(runner.manager));
    await throwIfTransactionOpen(runner);
    return await work(runner.manager);
  } finally {
    await runner.release();
  }
}

/** Status flags of the session, which the server sends with each reply. */
const IN_TRANSACTION = 1;
const AUTOCOMMIT = 2;

/**
 * Does the work in a session of MySQL or MariaDB that commits each statement. If autocommit is off by default, writes outside
 * of a transaction would be undone when the connection is closed.
 *
 * @throws LockConfigError if the pool returns a connection with an open transaction: the work would become part of it, or
 *   commit it
 */
async function withAutocommit<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const { serverStatus } = (await runner.query('DO 0')) as { serverStatus: number };
  if (serverStatus & IN_TRANSACTION) throw openTransactionError();
  if (serverStatus & AUTOCOMMIT) return work();
  await runner.query('SET autocommit = 1');
  try {
    return await work();
  } finally {
    await runner.query('SET autocommit = 0');
  }
}

/**
 * The check for PostgreSQL, if the driver has `getTransactionStatus()`: newer versions of `pg` do, with pg-native from 3.8.
 *
 * @throws LockConfigError if the pool returns a connection with an open transaction
 */
async function throwIfTransactionOpen(runner: QueryRunner): Promise<void> {
  const client = (await runner.connect()) as PgClient;
  if (['T', 'E'].includes(transactionStatusOf(client) ?? '')) throw openTransactionError();
}

interface PgClient {
  getTransactionStatus?(): string | null;
}

function transactionStatusOf(client: PgClient): string | null | undefined {
  try {
    return client.getTransactionStatus?.();
  } catch {
    // `pg` has the method, but the older pg-native under it does not.
    return undefined;
  }
}

const openTransactionError = () =>
  new LockConfigError(
    `Expected a connection of the pool without an open transaction, got one with a transaction that the application has left ` +
      `open. Commit or roll back before a connection goes back to the pool. Where autocommit is off, a plain read opens a ` +
      `transaction too.`,
  );
