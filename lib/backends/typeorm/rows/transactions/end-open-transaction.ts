import type { QueryRunner } from 'typeorm';
import { isOnlyConnection } from './only-connection.js';

/** What is needed of a connection of `mysql2`, which has both, or of `pg`. */
interface PooledConnection {
  destroy?(): void;
  end?(): Promise<unknown>;
}

/**
 * Ends a transaction that TypeORM could not roll back, as where a subscriber fails before ROLLBACK. The only connection of SQLite is
 * rolled back without TypeORM. Any other one is closed: TypeORM would give it to the pool, where the next COMMIT would also commit
 * what was given up.
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
  // Nobody waits: it ends when the server has heard of it.
  else client.end?.().catch(() => undefined);
}
