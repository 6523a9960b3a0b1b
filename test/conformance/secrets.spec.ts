import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LoggerService } from '@nestjs/common';
import getPort from 'get-port';
import { Cluster } from 'ioredis';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { systemClock } from '../../lib/core/clock.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { Events } from '../../lib/core/events.js';
import { Locks } from '../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../lib/core/options.js';
import { createLogListeners } from '../../lib/module/event-log.js';
import { serviceUrl } from '../support/environment.js';

/** It looks otherwise in a URL. */
const SECRET = 'open sesame@xyzzy/ß';
const IN_URL = encodeURIComponent(SECRET);
/** However it is written. No digits: the ports and times of a message have those too. */
const TELLING = /sesame|xyzzy/;
const SOURCE = { namespace: 'lock', instance: 'spec' };
const EVENTS = [
  ...['unavailable', 'renewal-failed', 'lost', 'contended', 'timeout', 'shutdown'],
  ...['server-away', 'server-back'],
];

/** Somebody's server, with a name and a password that it does not know. */
const elsewhere = (url: string, port?: number) => {
  const changed = new URL(url);
  changed.username = 'nobody';
  changed.password = IN_URL;
  if (port !== undefined) changed.port = String(port);
  return changed.href;
};

/** As parameters, which ioredis takes for options. */
const withParameter = (url: string) => {
  const changed = new URL(url);
  changed.searchParams.set('username', 'nobody');
  changed.searchParams.set('password', SECRET);
  return changed.href;
};

/** As deep as a logger may look, and further. */
const shown = (value: unknown) => inspect(value, { depth: 20, showHidden: false, maxStringLength: Infinity });

describe('the password of a connection', () => {
  const told: string[] = [];
  const tell = (...values: unknown[]) => void told.push(...values.map(shown));
  const logger = { log: tell, warn: tell, error: tell } satisfies LoggerService;
  const opened: Locks[] = [];
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
  afterAll(() => Promise.all(opened.map((locks) => locks.close())));

  const stores: [string, () => Promise<LockBackend>][] = [
    ['Redis that refuses it', async () => redisBackend({ url: elsewhere(serviceUrl('TEST_REDIS_URL')) })],
    [
      'Redis that is not there',
      async () => redisBackend({ url: elsewhere(serviceUrl('TEST_REDIS_URL'), await getPort()) }),
    ],
    ['Redis by options', async () => redisBackend({ options: await unreachable() })],
    [
      'Redis by parameters of the URL',
      async () => redisBackend({ url: withParameter(serviceUrl('TEST_REDIS_URL')) }),
    ],
    [
      'Redis that speaks no TLS',
      async () =>
        redisBackend({ url: elsewhere(serviceUrl('TEST_REDIS_URL')).replace(/^redis:/, 'rediss:') }),
    ],
    ['Redis that no Sentinel knows', async () => redisBackend({ options: await unknownGroup() })],
    ['a Redis Cluster that is not there', () => cluster()],
    ['a quorum, one of which refuses it', () => quorum()],
    ['postgres that is not there', () => sql('postgres', 'TEST_POSTGRES_URL', 'nowhere')],
    ['postgres that refuses it', () => sql('postgres', 'TEST_POSTGRES_URL')],
    ['mariadb that is not there', () => sql('mariadb', 'TEST_MARIADB_URL', 'nowhere')],
    ['mariadb that refuses it', () => sql('mariadb', 'TEST_MARIADB_URL')],
  ];

  it.each(stores)('is in no error, log or event of %s', async (_, open) => {
    const backend = await open();
    const events = new Events(
      { ...SOURCE, backend: backend.name, module: 'default' },
      createLogListeners(logger, systemClock),
    );
    const locks = new Locks({ backend, ...SOURCE, defaults: BUILT_IN_LOCK_OPTIONS, events });
    opened.push(locks);
    const asked = await Promise.allSettled([
      locks.check(3_000),
      locks.acquire('key', { waitMs: 200 }),
      locks.tryAcquire('key'),
      locks.inspect('key'),
      locks.forceRelease('key', 1n),
      locks.jobs.readHistory('job'),
      locks.jobs.appendHistory('job', 'a note'),
    ]);
    for (const answer of asked.slice(0, -1)) expect(answer.status).toBe('rejected');
    const all = [...told, ...asked.map(shown)].join('\n');
    expect(all).not.toMatch(TELLING);
    expect(told.length).toBeGreaterThan(0);
  });

  it('is in no error about options', () => {
    const wrong = [
      () => redisBackend({ url: `http://nobody:${IN_URL}@localhost` }),
      () => redisBackend({ url: `redis://nobody:${IN_URL}@host:port:` }),
      () => redisBackend({ url: `nobody:${IN_URL}` }),
      () => redisBackend({ options: { password: SECRET }, url: `redis://:${IN_URL}@localhost` }),
      () => redlockBackend({ clients: [{ url: `redis://:${IN_URL}@localhost` }] }),
      () => redlockBackend({ clients: [`redis://:${IN_URL}@localhost`] as never }),
      () => typeormBackend({ dataSource: { type: 'mssql', url: `mssql://nobody:${IN_URL}@localhost` } }),
      () => typeormBackend({ dataSource: `postgres://nobody:${IN_URL}@localhost` as never }),
    ];
    for (const make of wrong) {
      let error: unknown;
      try {
        make();
      } catch (thrown) {
        error = thrown;
      }
      expect(error).toBeInstanceOf(Error);
      expect(shown(error)).not.toMatch(TELLING);
    }
  });
});

const unreachable = async () => ({ host: '127.0.0.1', port: await getPort(), password: SECRET });

const unknownGroup = async () => ({
  name: 'nowhere',
  sentinels: [{ host: '127.0.0.1', port: await getPort() }],
  password: SECRET,
  sentinelPassword: SECRET,
});

/** It stays closed, as ours is a duplicate. */
async function cluster(): Promise<LockBackend> {
  const nodes = [{ host: '127.0.0.1', port: await getPort() }];
  return redisBackend({
    client: new Cluster(nodes, { lazyConnect: true, redisOptions: { password: SECRET } }),
  });
}

async function quorum(): Promise<LockBackend> {
  const url = serviceUrl('TEST_REDIS_URL');
  const ports = [undefined, await getPort(), await getPort()];
  return redlockBackend({ clients: ports.map((port) => ({ url: elsewhere(url, port) })) });
}

async function sql(
  type: 'postgres' | 'mariadb',
  variable: 'TEST_POSTGRES_URL' | 'TEST_MARIADB_URL',
  where?: 'nowhere',
): Promise<LockBackend> {
  const url = elsewhere(serviceUrl(variable), where && (await getPort()));
  return typeormBackend({ dataSource: { type, url } });
}
