import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import { DataSource } from 'typeorm';
import type { LockBackend } from '../../lib/core/backend.js';
import { askRedis } from '../services/ask-redis.js';
import { freeze, thaw } from '../services/freeze.js';
import { storeKinds } from '../store-kinds.js';
import { backendOn } from '../stores.js';
import { until } from '../until.js';

/** Who asks believes the store's clock to be ahead by up to a round trip. */
const CLEARLY_LATE_MS = 1_000;

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

/** Of a backend itself: locks would take back what came too late, and so hide it. */
async function ask(backend: LockBackend, key: string, limitMs: number): Promise<string> {
  const request = { key, holder: `of ${key}`, leaseMs: 60_000, instance: 'a spec' };
  const { acquire } = await backend.exchange({ acquire: [request] }, limitMs);
  return acquire[0]!.kind;
}

it.each(storeKinds)(
  'on $name a request that is read after its asker gave up is granted nothing',
  async ({ name, start, storeAt }) => {
    const server = await start();
    const asker = backendOn(storeAt(server.url));
    const witness = backendOn(storeAt(server.url));
    try {
      expect(await ask(asker, 'in time', 10_000)).toBe('granted');
      await freeze(server);
      expect(await ask(asker, 'late', 300)).toBe('unknown');
      await asker.close();
      await sleep(CLEARLY_LATE_MS);
      thaw(server);
      await until(async () => (await sessionsOn[name](server.url)) === 0);
      expect(await witness.inspect('in time', 10_000)).not.toBeNull();
      expect(await witness.inspect('late', 10_000)).toBeNull();
    } finally {
      thaw(server);
      await witness.close();
      await server.stop();
    }
  },
  60_000,
);
