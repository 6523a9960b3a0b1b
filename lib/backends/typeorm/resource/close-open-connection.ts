import type { QueryRunner } from 'typeorm';
import { isShared } from './only-connection.js';

/** What is needed of a connection of `mysql2`, which has both, or of `pg`. */
interface Client {
  destroy?(): void;
  end?(): Promise<unknown>;
}

/**
 * Closes the connection of a transaction that could not be rolled back, unless it is the only one. TypeORM would give it to
 * the pool, where the next COMMIT would also commit what was given up.
 */
export async function closeOpenConnection(runner: QueryRunner): Promise<void> {
  if (runner.isReleased || isShared(runner)) return;
  const client = (await runner.connect()) as Client;
  if (client.destroy) client.destroy();
  // Nobody waits: it ends when the server has heard of it.
  else client.end?.().catch(() => undefined);
}
