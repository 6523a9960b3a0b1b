import type { QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../../core/errors.js';
import { isMysql } from '../database.js';
import { isOpenInSqlite } from './sqlite-connection.js';

/** What the server says about the session of a query runner. */
interface SessionState {
  /** On PostgreSQL `false` if the driver does not report it. */
  readonly isInTransaction: boolean;
  /** If it is off, the next statement begins a transaction. */
  readonly hasAutocommit: boolean;
}

/** Status flags of MySQL and MariaDB, which the server sends with each reply. */
const IN_TRANSACTION = 1;
const AUTOCOMMIT = 2;

/** The driver of PostgreSQL knows it. That of MySQL and MariaDB needs a round trip. */
async function sessionStateOf(runner: QueryRunner): Promise<SessionState> {
  if (!isMysql(runner)) {
    const status = transactionStatusOf((await runner.connect()) as PgClient);
    return { isInTransaction: status === 'T' || status === 'E', hasAutocommit: true };
  }
  const { serverStatus } = (await runner.query('DO 0')) as { serverStatus: number };
  return {
    isInTransaction: (serverStatus & IN_TRANSACTION) !== 0,
    hasAutocommit: (serverStatus & AUTOCOMMIT) !== 0,
  };
}

interface PgClient {
  /** Newer versions of `pg` have it, with pg-native from 3.8. */
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

/**
 * Checks a connection that the pool has returned. Resolves to whether autocommit is on.
 *
 * @throws LockConfigError if it has an open transaction: what follows would become part of it, or commit it
 */
export async function throwIfLeftOpen(runner: QueryRunner): Promise<boolean> {
  const { isInTransaction, hasAutocommit } = await sessionStateOf(runner);
  if (isInTransaction) throw leftOpenError();
  return hasAutocommit;
}

/**
 * Checks a query runner of the caller, on a database server. In a transaction that TypeORM did not begin, a helper
 * would repeat one statement after a conflict that has ended all of it, or commit what was written so far.
 *
 * @throws LockConfigError if it has such a transaction, or if its next statement would begin one
 */
export async function throwIfBegunByStatement(runner: QueryRunner): Promise<void> {
  const isBegunByTypeorm = () => runner.isTransactionActive;
  // The connection of a released one is back in the pool, perhaps in the transaction of another caller.
  if (runner.isReleased || isBegunByTypeorm()) return;
  const { isInTransaction, hasAutocommit } = await sessionStateOf(runner);
  // Another call may have begun a transaction through TypeORM meanwhile.
  if (!isBegunByTypeorm() && (isInTransaction || !hasAutocommit)) throw begunByStatementError();
}

/** As {@link throwIfBegunByStatement}, on the only connection of SQLite. Without an `await`, because others use it too. */
export function throwIfBegunInProcess(runner: QueryRunner): void {
  if (!runner.isTransactionActive && isOpenInSqlite(runner)) throw begunByStatementError();
}

const leftOpenError = () =>
  new LockConfigError(
    `Expected a connection of the pool without an open transaction, got one with a transaction that the application has left ` +
      `open. Commit or roll back before a connection goes back to the pool. Where autocommit is off, a plain read opens a ` +
      `transaction too.`,
  );

const begunByStatementError = () =>
  new LockConfigError(
    `Expected a query runner without an open transaction, or with one that TypeORM has begun, got one that a statement such as ` +
      `BEGIN has begun, or autocommit is off. Begin the transaction with queryRunner.startTransaction() or ` +
      `dataSource.transaction().`,
  );
