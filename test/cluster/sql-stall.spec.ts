import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { dataSourceOptions, mariadbStore, postgresStore } from '../support/stores.js';

const statements = {
  postgres: { lock: 'LOCK TABLE stalled_lock IN ACCESS EXCLUSIVE MODE', unlock: 'COMMIT' },
  mariadb: { lock: 'LOCK TABLES stalled_lock WRITE', unlock: 'UNLOCK TABLES' },
};

describe.each([
  ['postgres' as const, postgresStore],
  ['mariadb' as const, () => mariadbStore()],
])('after a statement that got no answer, on %s', (name, storeOf) => {
  it('the next one is not sent over the connection that was given up', async () => {
    const options = dataSourceOptions(storeOf());
    const stranger = await new DataSource(options).initialize();
    const runner = stranger.createQueryRunner();
    const backend = typeormBackend({ dataSource: options, table: 'stalled_lock' });
    const ask = async (limitMs: number) => {
      const request = { key: randomUUID(), holder: randomUUID(), leaseMs: 10_000, instance: 'spec' };
      const { acquire } = await backend.execute({ acquire: [request] }, limitMs);
      return acquire[0]!.kind;
    };
    try {
      expect(await ask(5_000)).toBe('granted');
      for (let round = 0; round < 5; round += 1) {
        await runner.query('BEGIN');
        await runner.query(statements[name].lock);
        expect(await ask(300)).toBe('unknown');
        await runner.query(statements[name].unlock);
        expect(await ask(5_000)).toBe('granted');
      }
    } finally {
      await backend.close();
      await runner.release();
      await stranger.destroy();
    }
  }, 60_000);
});
