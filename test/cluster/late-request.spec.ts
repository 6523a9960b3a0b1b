import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import type { LockBackend } from '../../lib/core/backend.js';
import { askRedis } from '../services/ask-redis.js';
import { freeze, thaw } from '../faults/injection/freeze.js';
import { storeKinds } from '../support/store-kinds.js';
import { backendOn } from '../support/stores.js';
import { until } from '../support/until.js';

/** How many connections of others a server has. */
const sessionsOn = {
  async redis(url: string) {
    const list = await askRedis(url, (admin) => admin.client('LIST'));
    return (list as string).trim().split('\n').length - 1;
  },
  postgres: (url: string) =>
    countOn(
      { type: 'postgres', url },
      `SELECT count(*) AS sessions FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
    ),
  mariadb: (url: string) =>
    countOn(
      { type: 'mariadb', url },
      `SELECT count(*) AS sessions FROM information_schema.processlist WHERE id <> connection_id() AND user <> 'system user'`,
    ),
};

async function countOn(options: { type: 'postgres' | 'mariadb'; url: string }, sql: string): Promise<number> {
  const admin = await new DataSource(options).initialize();
  try {
    const [{ sessions }] = await admin.query<[{ sessions: string }]>(sql);
    return Number(sessions);
  } finally {
    await admin.destroy();
  }
}

const requestFor = (key: string) => ({ key, holder: `of ${key}`, leaseMs: 60_000, instance: 'a spec' });

/** Of a backend itself: locks would take back what came too late, and so hide it. */
async function ask(backend: LockBackend, keys: readonly string[], limitMs: number) {
  const { acquire } = await backend.execute({ acquire: keys.map(requestFor) }, limitMs);
  return acquire;
}

describe.each([[['late']], [['late', 'freed']]])('for %j', (keys) => {
  it.concurrent.each(storeKinds)(
    'on $name a request that is read after its asker gave up is granted nothing',
    async ({ name, start, storeAt }) => {
      const server = await start();
      const asker = backendOn(storeAt(server.url));
      const witness = backendOn(storeAt(server.url));
      try {
        const startedAtMs = performance.now();
        // One at a time, of which the store may tell the least; and some more, as it may be asked for the rest after an answer.
        const others = Array.from({ length: 10 }, (_, index) => `other ${index}`);
        for (const key of ['in time', 'freed', ...others]) {
          expect(await ask(asker, [key], 10_000)).toMatchObject([{ kind: 'granted' }]);
        }
        await asker.execute({ release: [requestFor('freed')] }, 10_000);
        const roundTripMs = performance.now() - startedAtMs;
        await freeze(server);
        const late = await ask(asker, keys, 300);
        expect(late).toMatchObject(keys.map(() => ({ kind: 'unknown' })));
        for (const answer of late) expect(answer).not.toHaveProperty('wasSent');
        await asker.close();
        // Who asks believes the clock of the store to be ahead by up to a round trip.
        await sleep(roundTripMs + 1_000);
        thaw(server);
        await until(async () => (await sessionsOn[name](server.url)) === 0);
        expect(await witness.inspect('in time', 10_000)).not.toBeNull();
        for (const key of keys) expect(await witness.inspect(key, 10_000)).toBeNull();
      } finally {
        thaw(server);
        await asker.close();
        await witness.close();
        await server.stop();
      }
    },
    60_000,
  );
});
