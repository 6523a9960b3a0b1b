import type { QueryRunner } from 'typeorm';
import { isInProcess } from '../database.js';
import { isOpenInSqlite, sqliteConnectionOf } from './sqlite-connection.js';

/** What TypeORM knows about the transaction of a query runner. Its types do not show the depth. */
interface TransactionState {
  transactionDepth: number;
  isTransactionActive: boolean;
}

/** 1 in a transaction, more in TypeORM's savepoints within it. */
export const depthOf = (runner: QueryRunner): number =>
  (runner as Partial<TransactionState>).transactionDepth ?? 1;

/** TypeORM sets `isTransactionActive` before it sends BEGIN. A nested transaction cannot begin before that has a result. */
export const hasBegun = (runner: QueryRunner): boolean => runner.isTransactionActive && depthOf(runner) > 0;

/**
 * Calls `report` as soon as a COMMIT, ROLLBACK or the same for a savepoint has taken effect. TypeORM calls the subscribers
 * afterwards, and waits for them.
 */
export function onTransactionEnd({ broadcaster }: QueryRunner, report: () => void): void {
  const broadcast = broadcaster.broadcast.bind(broadcaster);
  broadcaster.broadcast = (event, ...rest) => {
    if (event === 'AfterTransactionCommit' || event === 'AfterTransactionRollback') report();
    return broadcast(event, ...rest);
  };
}

/** Corrects TypeORM's state after an event that TypeORM has missed. */
export const correctState = (runner: QueryRunner, state: Partial<TransactionState>): void =>
  void Object.assign(runner, state);

/** The state of SQLite's only connection before BEGIN. */
export interface StateBeforeBegin {
  readonly depth: number;
  readonly wasOpen: boolean;
}

/** A transaction could not begin on SQLite's only connection, which must stay open. */
export function correctBegin(runner: QueryRunner, { depth, wasOpen }: StateBeforeBegin): void {
  if (depthOf(runner) === 0) {
    // A subscriber may have failed after BEGIN.
    if (!wasOpen && isOpenInSqlite(runner)) sqliteConnectionOf(runner)?.exec('ROLLBACK');
    // TypeORM treats a transaction as active though its BEGIN has failed.
    correctState(runner, { isTransactionActive: false });
  }
  // If a subscriber rejects a nested transaction, TypeORM resets the state of the outer one, and would send no COMMIT and no
  // ROLLBACK for it.
  if (depth > 0 && depthOf(runner) === depth) correctState(runner, { isTransactionActive: true });
}

/** Whether SQLite has rolled the transaction back by itself, as it does when the disk is full, or at `RAISE(ROLLBACK)`. */
export async function hasRolledBack(runner: QueryRunner): Promise<boolean> {
  if (!runner.isTransactionActive) return false;
  const connection = (await runner.connect()) as { inTransaction?: boolean } | undefined;
  return connection?.inTransaction === false;
}

/**
 * Rolls back, and resolves to whether SQLite had rolled the transaction back by itself. ROLLBACK then fails, and TypeORM would
 * treat the transaction as still open. Rejects without a correction if `isPending` returns false: a subscriber has failed after
 * the ROLLBACK.
 */
export async function rollBackOnce(
  runner: QueryRunner,
  rollback: () => Promise<void>,
  isPending: () => boolean,
): Promise<boolean> {
  try {
    await rollback();
    return false;
  } catch (error) {
    if (!isPending() || !(await hasRolledBack(runner))) throw error;
    // The depth is 0 if BEGIN itself has failed.
    const transactionDepth = Math.max(0, depthOf(runner) - 1);
    correctState(runner, { transactionDepth, isTransactionActive: transactionDepth > 0 });
    return true;
  }
}

/**
 * A rollback has failed: ends the transaction without TypeORM, or marks the savepoint as ended. Resolves to whether a savepoint
 * could not be rolled back. `depth` is that before the rollback.
 */
export async function correctRollback(runner: QueryRunner, depth: number): Promise<boolean> {
  if (depth <= 1) {
    // On a server, BEGIN may still take effect if it got no answer.
    const mayBegin = runner.isTransactionActive && !isInProcess(runner);
    if (depthOf(runner) > 0 || mayBegin) await endOpenTransaction(runner);
    return false;
  }
  if (depthOf(runner) !== depth) return false;
  // Otherwise TypeORM would treat the end of the transaction as that of the savepoint, and would not end it.
  correctState(runner, { transactionDepth: depth - 1 });
  return true;
}

/** The used part of a connection: `mysql2` has both methods, `pg` has `end` only. */
interface PooledConnection {
  destroy?(): void;
  end?(): Promise<unknown>;
}

/**
 * Ends a transaction that TypeORM could not roll back, for instance because a subscriber failed before ROLLBACK. On SQLite's
 * only connection, sends ROLLBACK without TypeORM. Any other connection is closed: TypeORM would return it to the pool, where
 * the next COMMIT would also commit the failed transaction. TypeORM would also treat the transaction as open for ever, as would
 * what its work has started.
 */
async function endOpenTransaction(runner: QueryRunner): Promise<void> {
  // Not through TypeORM: its subscribers may be what fails.
  if (isInProcess(runner)) sqliteConnectionOf(runner)?.exec('ROLLBACK');
  correctState(runner, { transactionDepth: 0, isTransactionActive: false });
  if (!isInProcess(runner)) await closeConnectionOf(runner);
}

async function closeConnectionOf(runner: QueryRunner): Promise<void> {
  // The driver of PostgreSQL releases the query runner of a connection that is lost.
  if (runner.isReleased) return;
  const client = (await runner.connect()) as PooledConnection;
  if (client.destroy) client.destroy();
  // Not awaited: the server rolls back when the connection has closed.
  else client.end?.().catch(() => undefined);
}
