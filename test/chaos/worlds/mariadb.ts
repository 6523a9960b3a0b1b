import { setTimeout as sleep } from 'node:timers/promises';
import type { QueryRunner } from 'typeorm';
import { startMariadb } from '../../services/mariadb.js';
import type { Store } from '../../stores.js';
import { Server } from '../server.js';
import { StoreClock } from '../store-clock.js';
import { askerOf, sqlQuestions, stallWith } from './sql.js';
import type { World, WorldOptions } from './world.js';

const NOW = "TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(6))";
const FEW_CONNECTIONS = 10;
const MANY_CONNECTIONS = 300;

/** One MariaDB server. */
export async function mariadbWorld({ withClock }: WorldOptions): Promise<World> {
  const clock = withClock ? await StoreClock.open() : undefined;
  const server = await Server.start(startMariadb, clock ? { env: clock.env } : {});
  const storeAt = ([port]: readonly number[]): Store => ({
    database: { type: 'mariadb', at: `mariadb://root@127.0.0.1:${port}/lock` },
  });
  const ask = askerOf(() => storeAt([server.service.port]));
  return {
    name: 'mariadb',
    servers: [server],
    clock,
    storeAt,
    ...sqlQuestions(ask, { key: '`key`', now: NOW }),
    killSessions: () => ask(killOthers),
    stall: stallWith(ask, ['LOCK TABLES distributed_lock WRITE'], 'UNLOCK TABLES'),
    crowd: (forMs) =>
      ask(async (runner) => {
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
