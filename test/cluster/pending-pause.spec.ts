import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { slowProxy } from '../faults/injection/slow-proxy.js';
import { startPostgres } from '../services/postgres.js';
import { backendOn, dataSourceOptions, mariadbStore } from '../support/stores.js';
import { until } from '../support/until.js';

const LIMIT_MS = 60_000;

it.each([true, false])(
  'on PostgreSQL, a call that failed does not undo a later one that succeeded (pauses: %s)',
  async (isPaused) => {
    const server = await startPostgres();
    const database = await new DataSource({ type: 'postgres', url: server.url }).initialize();
    const url = new URL(server.url);
    const proxy = await slowProxy(Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    const [ours, theirs] = [url.href, server.url].map((at) =>
      backendOn({ database: { type: 'postgres', at } }),
    );
    const setStandby = async (name: string) => {
      await database.query(`ALTER SYSTEM SET synchronous_standby_names = '${name}'`);
      await database.query('SELECT pg_reload_conf()');
      const shown = () => database.query<[{ value: string }]>(`SHOW synchronous_standby_names`);
      await until(async () => Object.values((await shown())[0])[0] === name);
    };
    const countPending = async () => {
      const rows = await database.query<unknown[]>(
        `SELECT FROM pg_stat_activity WHERE wait_event IS NOT NULL AND state = 'active'
         AND query LIKE '%UPDATE%distributed_lock%' AND pid <> pg_backend_pid()`,
      );
      return rows.length;
    };
    try {
      for (const key of ['job', 'probe']) await ours!.registerTicks(key, LIMIT_MS);
      await theirs!.setPaused('job', !isPaused, LIMIT_MS);
      // Each commit then waits for a standby that is away. The server shows the setting before it takes effect.
      await setStandby('away');
      const setProbe = () => ours!.setPaused('probe', true, 1_000);
      await until(() =>
        setProbe().then(
          () => false,
          () => true,
        ),
      );
      await until(async () => (await countPending()) === 0);
      const failed = expect(ours!.setPaused('job', isPaused, 4_000)).rejects.toThrow();
      await until(async () => (await countPending()) > 0);
      // Without a connection, the backend cannot cancel the write, which then stays pending.
      proxy.isOpen = false;
      await failed;
      let isAnswered = false;
      const second = theirs!.setPaused('job', !isPaused, LIMIT_MS).finally(() => (isAnswered = true));
      await until(async () => isAnswered || (await countPending()) > 1);
      await setStandby('');
      await second;
      await until(async () => (await countPending()) === 0);
      expect((await theirs!.readTicks('job', LIMIT_MS)).isPaused ?? false).toBe(!isPaused);
    } finally {
      await Promise.all([ours!.close(), theirs!.close()]);
      await database.destroy();
      await proxy.close();
      await server.stop();
    }
  },
  LIMIT_MS,
);

it.each([true, false])(
  'on MariaDB, a call that failed while it waited for the row takes no effect later (pauses: %s)',
  async (isPaused) => {
    const key = randomUUID();
    const backend = backendOn(mariadbStore());
    const database = await new DataSource(dataSourceOptions(mariadbStore())).initialize();
    const runner = database.createQueryRunner();
    try {
      await backend.registerTicks(key, LIMIT_MS);
      await backend.setPaused(key, !isPaused, LIMIT_MS);
      await runner.startTransaction();
      await runner.query('SELECT 1 FROM distributed_lock WHERE `key` = ? FOR UPDATE', [key]);
      // Each statement waits for the row for a second, so without the rule one of them waits at this time.
      await expect(backend.setPaused(key, isPaused, 3_500)).rejects.toThrow();
      await runner.commitTransaction();
      // Behind the row lock of a statement that still waits.
      await database.query('SELECT 1 FROM distributed_lock WHERE `key` = ? FOR UPDATE', [key]);
      expect((await backend.readTicks(key, LIMIT_MS)).isPaused ?? false).toBe(!isPaused);
    } finally {
      await runner.release();
      await database.destroy();
      await backend.close();
    }
  },
  LIMIT_MS,
);
