import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll } from 'vitest';
import { DataSource } from 'typeorm';
import { distributedLockMigration } from '../../lib/backends/typeorm/index.js';

/** Returns the name of a table of locks that exists while the specs of the block run. */
export function lockTableOf(database: () => DataSource): string {
  const table = `spec_${randomUUID().replaceAll('-', '_')}`;
  beforeAll(async () => {
    const runner = database().createQueryRunner();
    await new (distributedLockMigration({ table }))().up(runner);
    await runner.release();
  });
  afterAll(async () => {
    // That of the specs may be closed by now.
    const other = await new DataSource(database().options).initialize();
    await other.query(`DROP TABLE ${table}`);
    await other.destroy();
  });
  return table;
}
