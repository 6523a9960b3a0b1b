import { setTimeout as sleep } from 'node:timers/promises';
import type { QueryRunner } from 'typeorm';
import { startMariadb } from '../../../services/mariadb.js';
import type { Store } from '../../../support/stores.js';
import { RestartableServer } from '../../injection/restartable-server.js';
import { StoreClock } from '../../injection/store-clock.js';
import { queryOn, sqlStoreOperations, stallWith } from './sql-operations.js';
import type { StoreUnderTest, StoreOptions } from './store-under-test.js';

const NOW = "TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(6))";
const FEW_CONNECTIONS = 10;
const MANY_CONNECTIONS = 300;

/** One MariaDB server. */
export async function openMariadbStore({ withClock }: StoreOptions): Promise<StoreUnderTest> {
  const clock = withClock ? await StoreClock.open() : undefined;
  const server = await RestartableServer.start(startMariadb, clock ? { env: clock.env } : {});
  const storeAt = ([port]: readonly number[]): Store => ({
    database: { type: 'mariadb', at: `mariadb://root@127.0.0.1:${port}/lock` },
  });
  const query = queryOn(() => storeAt([server.service.port]));
  return {
    name: 'mariadb',
    servers: [server],
    clock,
    storeAt,
    ...sqlStoreOperations(query, { key: '`key`', now: NOW }),
    killSessions: () => query(killOthers),
    stall: stallWith(query, ['LOCK TABLES distributed_lock WRITE'], 'UNLOCK TABLES'),
    exhaustConnections: (forMs) =>
      query(async (runner) => {
        await runner.query(`SET GLOBAL max_connections = ${FEW_CONNECTIONS}`);
        await killOthers(runner);
        await sleep(forMs);
        await runner.query(`SET GLOBAL max_connections = ${MANY_CONNECTIONS}`);
      }),
    async close() {
      await server.close();
      clock?.close();
    },
  };
}

async function killOthers(runner: QueryRunner): Promise<void> {
  const sessions = (await runner.query(
    "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()",
  )) as { readonly id: number | string }[];
  // One that has ended meanwhile is no longer known.
  for (const { id } of sessions) await runner.query(`KILL CONNECTION ${id}`).catch(() => undefined);
}
