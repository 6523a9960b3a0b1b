import type { QueryRunner } from 'typeorm';
import { isOnlyConnection } from './only-connection.js';

/** The used part of a connection: `mysql2` has both methods, `pg` has `end` only. */
interface PooledConnection {
  destroy?(): void;
  end?(): Promise<unknown>;
}

/**
 * Ends a transaction that TypeORM could not roll back, for instance because a subscriber failed before ROLLBACK. On SQLite's
 * only connection, sends ROLLBACK without TypeORM. Any other connection is closed: TypeORM would return it to the pool, where
 * the next COMMIT would also commit the failed transaction.
 */
export async function endOpenTransaction(runner: QueryRunner): Promise<void> {
  if (runner.isReleased) return;
  if (isOnlyConnection(runner)) {
    await runner.query('ROLLBACK');
    Object.assign(runner, { transactionDepth: 0, isTransactionActive: false });
    return;
  }
  const client = (await runner.connect()) as PooledConnection;
  if (client.destroy) client.destroy();
  // Not awaited: the server rolls back when the connection has closed.
  else client.end?.().catch(() => undefined);
}
