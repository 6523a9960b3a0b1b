import type { EntityManager, QueryRunner } from 'typeorm';
import { type Database, dataSourceOf, isInProcess, managerOf } from '../database.js';
import { guardOf } from './runner-guard.js';
import { throwUnlessCommitted } from './libsql-commit.js';
import { throwIfBegunByStatement, throwIfBegunInProcess, throwIfLeftOpen } from './session-state.js';

/**
 * Does the work on the connection of the caller's transaction, or on a connection to the primary: a replica that lags behind
 * would return old rows.
 *
 * @throws LockConfigError if `database` is not a supported one, a pooled connection has an open transaction, or a query runner
 *   of the caller or the only connection of SQLite has one that TypeORM did not begin
 */
export async function onPrimary<T>(
  database: Database,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  const manager = managerOf(database);
  if (manager.queryRunner) return onOwnRunner(manager, manager.queryRunner, work);
  const runner = dataSourceOf(manager).createQueryRunner('master');
  if (isInProcess(manager))
    return guardOf(runner).runOutsideOtherTransactions(() => workOnFile(runner.manager, runner, work));
  try {
    const hasAutocommit = await throwIfLeftOpen(runner);
    return await (hasAutocommit ? work(runner.manager) : withAutocommit(runner, () => work(runner.manager)));
  } finally {
    await runner.release();
  }
}

function onOwnRunner<T>(
  manager: EntityManager,
  runner: QueryRunner,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  return guardOf(runner).run(async () => {
    if (isInProcess(runner)) return workOnFile(manager, runner, work);
    await throwIfBegunByStatement(runner);
    return work(manager);
  });
}

async function workOnFile<T>(
  manager: EntityManager,
  runner: QueryRunner,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  throwIfBegunInProcess(runner);
  const result = await work(manager);
  await throwUnlessCommitted(runner);
  return result;
}

/**
 * Does the work in a session of MySQL or MariaDB that commits each statement. If autocommit is off by default, writes outside
 * of a transaction would be undone when the connection is closed.
 */
async function withAutocommit<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  await runner.query('SET autocommit = 1');
  try {
    return await work();
  } finally {
    await runner.query('SET autocommit = 0');
  }
}
