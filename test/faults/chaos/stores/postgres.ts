import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource, type QueryRunner } from 'typeorm';
import type { PostgresDataSourceOptions } from 'typeorm/driver/postgres/PostgresDataSourceOptions.js';
import { startPostgres } from '../../../services/postgres.js';
import { type Store, dataSourceOptions } from '../../../support/stores.js';
import { until } from '../../../support/until.js';
import { RestartableServer } from '../../injection/restartable-server.js';
import { StoreClock } from '../../injection/store-clock.js';
import { queryOn, sqlStoreOperations, stallWith } from './sql-operations.js';
import type { StoreUnderTest, StoreOptions } from './store-under-test.js';

const MAX_CONNECTIONS = 40;
const BETWEEN_TRIES_MS = 50;
const CLOSE_MS = 5_000;
const EXHAUSTING_APPLICATION = 'crowd';
const KILL_OTHERS = `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`;
const KILL_EXHAUSTING = `${KILL_OTHERS} AND application_name = '${EXHAUSTING_APPLICATION}'`;

/** One PostgreSQL server. */
export async function openPostgresStore({ withClock }: StoreOptions): Promise<StoreUnderTest> {
  const clock = withClock ? await StoreClock.open() : undefined;
  const args = ['-c', `max_connections=${MAX_CONNECTIONS}`];
  const server = await RestartableServer.start(startPostgres, { args, ...(clock && { env: clock.env }) });
  const storeAt = ([port]: readonly number[]): Store => ({
    database: { type: 'postgres', at: `postgres://lock@127.0.0.1:${port}/lock` },
  });
  const store = () => storeAt([server.service.port]);
  const query = queryOn(store);
  return {
    name: 'postgres',
    servers: [server],
    clock,
    storeAt,
    ...sqlStoreOperations(query, {
      key: 'key',
      now: '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint',
    }),
    killSessions: () => query((runner) => runner.query(KILL_OTHERS)),
    stall: stallWith(query, ['BEGIN', 'LOCK TABLE distributed_lock IN ACCESS EXCLUSIVE MODE'], 'COMMIT'),
    exhaustConnections: (forMs) => query((runner) => takeAllConnections(runner, store(), forMs)),
    async close() {
      await server.close();
      clock?.close();
    },
  };
}

/** Ends the connections of all others, and takes as many of the free ones as it can get, again and again. */
async function takeAllConnections(admin: QueryRunner, store: Store, forMs: number): Promise<void> {
  await admin.query(KILL_OTHERS);
  const options = {
    ...dataSourceOptions(store),
    poolSize: MAX_CONNECTIONS,
    applicationName: EXHAUSTING_APPLICATION,
  };
  const database = await new DataSource(options as PostgresDataSourceOptions).initialize();
  try {
    const overAtMs = performance.now() + forMs;
    while (performance.now() < overAtMs) {
      const runners = Array.from({ length: MAX_CONNECTIONS }, () => database.createQueryRunner());
      await Promise.race([
        Promise.allSettled(runners.map((runner) => runner.connect())),
        sleep(BETWEEN_TRIES_MS),
      ]);
    }
  } finally {
    // A pool that is closed while it opens connections may wait for one of them for ever, or forget who has just got one.
    await Promise.race([database.destroy(), sleep(CLOSE_MS)]);
    await until(async () => ((await admin.query(KILL_EXHAUSTING)) as unknown as unknown[]).length === 0);
  }
}
