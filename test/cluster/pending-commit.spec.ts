import { randomUUID } from 'node:crypto';
import { expect, it } from '@jest/globals';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { startPgbouncer } from '../services/pgbouncer.js';
import { startPostgres } from '../services/postgres.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';

it.each(['directly', 'through PgBouncer'])(
  'a commit that waits for a standby leaves no process in the server after its timeout, %s',
  async (way) => {
    const server = await startPostgres();
    const file = serviceUrl('TEST_PGBOUNCER');
    const pooler = way === 'directly' ? undefined : await startPgbouncer({ file, server: server.url });
    const database = await new DataSource({ type: 'postgres', url: server.url }).initialize();
    const url = pooler?.url ?? server.url;
    const backend = typeormBackend({
      dataSource: { type: 'postgres', url },
      table: 'public.distributed_lock',
    });
    const acquire = async () => {
      const request = { key: randomUUID(), holder: randomUUID(), leaseMs: 60_000, instance: 'spec' };
      return (await backend.execute({ acquire: [request] }, 1_000)).acquire[0]!.kind;
    };
    const waitingCount = async () =>
      (await database.query<unknown[]>(`SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)).length;
    try {
      await backend.check(30_000);
      await database.query(`ALTER SYSTEM SET synchronous_standby_names = 'away'`);
      await database.query('SELECT pg_reload_conf()');
      await until(async () => (await acquire()) === 'unknown');
      for (let round = 0; round < 3; round += 1) expect(await acquire()).toBe('unknown');
      await until(async () => (await waitingCount()) === 0);
    } finally {
      await backend.close();
      await database.destroy();
      await pooler?.stop();
      await server.stop();
    }
  },
  60_000,
);
