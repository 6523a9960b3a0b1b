import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { LoggerService } from '@nestjs/common';
import getPort from 'get-port';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { systemClock } from '../../lib/core/clock.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { Events } from '../../lib/core/events.js';
import { Locks } from '../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../lib/core/options.js';
import { logListeners } from '../../lib/lock.logger.js';
import { serviceUrl } from '../environment.js';

const SECRET = 'open-sesame-4711';
const SOURCE = { namespace: 'lock', instance: 'spec' };
const EVENTS = ['unavailable', 'renewal-failed', 'lost', 'timeout', 'shutdown'];

/** Somebody's server, with a name and a password that it does not know. */
const elsewhere = (url: string, port?: number) => {
  const changed = new URL(url);
  changed.username = 'nobody';
  changed.password = SECRET;
  if (port !== undefined) changed.port = String(port);
  return changed.href;
};

/** As deep as a logger may look, and further. */
const shown = (value: unknown) => inspect(value, { depth: 20, showHidden: false, maxStringLength: Infinity });

describe('the password of a connection', () => {
  const told: string[] = [];
  const tell = (...values: unknown[]) => void told.push(...values.map(shown));
  const logger = { log: tell, warn: tell, error: tell } satisfies LoggerService;
  const backends: LockBackend[] = [];
  const channels = EVENTS.map((event) => `nestjs-distributed-lock:${event}`);
  beforeEach(() => {
    told.length = 0;
    for (const channel of channels) subscribe(channel, tell);
    process.on('warning', tell);
  });
  afterEach(() => {
    for (const channel of channels) unsubscribe(channel, tell);
    process.off('warning', tell);
  });
  afterAll(() => Promise.all(backends.map((backend) => backend.close())));

  const stores: [string, () => Promise<LockBackend>][] = [
    ['Redis that refuses it', async () => redisBackend({ url: elsewhere(serviceUrl('TEST_REDIS_URL')) })],
    [
      'Redis that is not there',
      async () => redisBackend({ url: elsewhere(serviceUrl('TEST_REDIS_URL'), await getPort()) }),
    ],
    ['Redis by options', async () => redisBackend({ options: await unreachable() })],
    ['postgres that is not there', () => sql('postgres', 'TEST_POSTGRES_URL', 'nowhere')],
    ['postgres that refuses it', () => sql('postgres', 'TEST_POSTGRES_URL')],
    ['mariadb that is not there', () => sql('mariadb', 'TEST_MARIADB_URL', 'nowhere')],
    ['mariadb that refuses it', () => sql('mariadb', 'TEST_MARIADB_URL')],
  ];

  it.each(stores)('is in no error, log or event of %s', async (_, open) => {
    const backend = await open();
    backends.push(backend);
    const events = new Events(SOURCE, logListeners(logger, systemClock));
    const locks = new Locks({ backend, ...SOURCE, defaults: BUILT_IN_LOCK_OPTIONS, events });
    const asked = await Promise.allSettled([
      locks.check(3_000),
      locks.acquire('key', { waitMs: 200 }),
      locks.tryAcquire('key'),
      locks.inspect('key'),
      locks.forceRelease('key', 1n),
      locks.notes('job'),
      locks.note('job', 'a note'),
    ]);
    for (const answer of asked.slice(0, -1)) expect(answer.status).toBe('rejected');
    const all = [...told, ...asked.map(shown)].join('\n');
    expect(all).not.toContain(SECRET);
    expect(told.length).toBeGreaterThan(0);
  });

  it('is in no complaint about options', () => {
    const wrong = [
      () => redisBackend({ url: `http://nobody:${SECRET}@localhost` }),
      () => redisBackend({ url: `redis://nobody:${SECRET}@host:port:` }),
      () => redisBackend({ url: `nobody:${SECRET}` }),
      () => redisBackend({ options: { password: SECRET }, url: `redis://:${SECRET}@localhost` }),
      () => typeormBackend({ dataSource: { type: 'mssql', url: `mssql://nobody:${SECRET}@localhost` } }),
      () => typeormBackend({ dataSource: `postgres://nobody:${SECRET}@localhost` as never }),
    ];
    for (const make of wrong) {
      let error: unknown;
      try {
        make();
      } catch (thrown) {
        error = thrown;
      }
      expect(error).toBeInstanceOf(Error);
      expect(shown(error)).not.toContain(SECRET);
    }
  });
});

const unreachable = async () => ({ host: '127.0.0.1', port: await getPort(), password: SECRET });

async function sql(
  type: 'postgres' | 'mariadb',
  variable: 'TEST_POSTGRES_URL' | 'TEST_MARIADB_URL',
  where?: 'nowhere',
): Promise<LockBackend> {
  const url = elsewhere(serviceUrl(variable), where && (await getPort()));
  return typeormBackend({ dataSource: { type, url } });
}
