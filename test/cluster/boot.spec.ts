import { afterEach, describe, expect, it } from 'vitest';
import type { INestApplicationContext } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import { DistributedLockModule } from '../../lib/distributed-lock.module.js';
import { LockService } from '../../lib/lock.service.js';
import { serviceUrl } from '../support/environment.js';
import { askRedis } from '../services/ask-redis.js';
import { freePort } from '../services/free-port.js';
import { startRedis } from '../services/redis-server.js';
import { until } from '../support/until.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** Boots, and answers the application with what it warned of. */
async function booted(backend: LockBackend, failOnBoot?: boolean) {
  const warnings: string[] = [];
  const warn = (message: string) => void warnings.push(message);
  const quiet = () => undefined;
  const lockModule = DistributedLockModule.forRoot({
    backend,
    ...(failOnBoot !== undefined && { failOnBoot }),
  });
  const app: INestApplicationContext = await Test.createTestingModule({ imports: [lockModule] })
    .setLogger({ log: quiet, error: quiet, warn })
    .compile();
  ends.push(() => app.close());
  await app.init();
  return { app, warnings: warnings.join('\n') };
}

const at = (options: object) => ({ options: { host: '127.0.0.1', ...options } });

async function protectedRedis() {
  const { url, port, stop } = await startRedis();
  ends.push(stop);
  await askRedis(url, (admin) => admin.config('SET', 'requirepass', 'right'));
  return port;
}

const sql = (type: 'postgres' | 'mariadb', change: (url: URL) => void) => {
  const url = new URL(serviceUrl(type === 'postgres' ? 'TEST_POSTGRES_URL' : 'TEST_MARIADB_URL'));
  change(url);
  return typeormBackend({ dataSource: { type, url: url.href } });
};

const CASES: readonly (readonly [string, () => Promise<LockBackend>, RegExp])[] = [
  [
    'Redis with a wrong password',
    async () => redisBackend(at({ port: await protectedRedis(), password: 'wrong' })),
    /refuses the credentials.*WRONGPASS/,
  ],
  [
    'Redis without a password',
    async () => redisBackend(at({ port: await protectedRedis() })),
    /asks for a password.*NOAUTH/,
  ],
  [
    'Redis with an unknown database',
    async () => redisBackend(at({ port: await protectedRedis(), password: 'right', db: 99 })),
    /does not have the database.*out of range/,
  ],
  [
    'a port where no Redis listens',
    async () => redisBackend(at({ port: await freePort() })),
    /refuses connections.*ECONNREFUSED/,
  ],
  [
    'an unknown host',
    async () => redisBackend({ url: 'redis://nowhere.invalid:6379' }),
    /unknown host name.*ENOTFOUND/,
  ],
  [
    'a port where no etcd listens',
    async () => etcdBackend({ hosts: `127.0.0.1:${await freePort()}` }),
    /refuses connections.*etcd cannot be reached at .*ECONNREFUSED/,
  ],
  [
    'a port where no ZooKeeper listens',
    async () => zookeeperBackend({ servers: `127.0.0.1:${await freePort()}` }),
    /refuses connections.*ZooKeeper cannot be reached at .*ECONNREFUSED/,
  ],
  [
    'an unknown host of etcd',
    async () => Promise.resolve(etcdBackend({ hosts: 'nowhere.invalid:2379' })),
    /unknown host name.*ENOTFOUND/,
  ],
  [
    'an unknown host of ZooKeeper',
    async () => Promise.resolve(zookeeperBackend({ servers: 'nowhere.invalid:2181' })),
    /unknown host name.*ENOTFOUND/,
  ],
  [
    'a quorum with a wrong password',
    async () => {
      const clients = [];
      for (let server = 0; server < 3; server += 1)
        clients.push(at({ port: await protectedRedis(), password: 'wrong' }));
      return redlockBackend({ clients });
    },
    /refuses the credentials.*WRONGPASS/,
  ],
  [
    'PostgreSQL with an unknown database',
    async () => sql('postgres', (url) => (url.pathname = '/no_such_database')),
    /does not have the database/,
  ],
  [
    'MariaDB with a wrong password',
    async () => sql('mariadb', (url) => (url.password = 'wrong')),
    /refuses the credentials/,
  ],
];

describe('a call', () => {
  it.each(CASES)('is refused with the reason: %s', async (name, make, reason) => {
    const { app } = await booted(await make());
    const failure: unknown = await app
      .get(LockService)
      .tryAcquire('key')
      .catch((error: unknown) => error);
    const { message } = failure as LockUnavailableError;
    const mayPass = /where no .* listens|unknown host/.test(name);
    expect(message).toMatch(mayPass ? /Try again when the store answers/ : reason);
    if (!mayPass) expect(message).toMatch(/^"key" cannot be locked: the lock store/);
  });
});

describe('at boot', () => {
  it.each(CASES)('%s is told of with the reason', async (_, make, reason) => {
    const { warnings } = await booted(await make());
    expect(warnings).toMatch(reason);
    expect(warnings).not.toContain('does not answer yet');
  });

  it.each(CASES)('%s ends it, where failOnBoot asks for that', async (_, make, reason) => {
    const refused = booted(await make(), true);
    await expect(refused).rejects.toThrow(LockUnavailableError);
    await expect(refused).rejects.toThrow(reason);
  });

  it('a wrong password is used no more once it was put right', async () => {
    const options = { host: '127.0.0.1', port: await protectedRedis(), password: 'wrong' };
    const { app } = await booted(redisBackend({ options }));
    options.password = 'right';
    await until(() =>
      app
        .get(LockService)
        .withLock('key', () => true)
        .catch(() => false),
    );
  });
});
