import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { Cluster, Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import type { UnknownResult } from '../../lib/core/unknown-result.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { until } from '../support/until.js';

let primary: Service;
let replica: Service;
let admin: Redis;
let backend: LockBackend;

beforeAll(async () => {
  primary = await startRedis({ args: ['--repl-diskless-sync-delay', '0'] });
  replica = await startRedis({ args: ['--replicaof', `127.0.0.1 ${primary.port}`] });
  admin = new Redis(primary.url);
  await until(async () => (await admin.info('replication')).includes('state=online'));
  backend = redisBackend({ url: primary.url, minReplicas: 1 });
}, 60_000);
afterEach(() => replica.kill('SIGCONT'));
afterAll(async () => {
  await backend.close();
  await admin.quit();
  await replica.stop();
  await primary.stop();
});

const acquisition = () => ({ key: randomUUID(), holder: randomUUID(), leaseMs: 30_000, instance: '' });
const reasonOf = (answer: unknown) => ((answer as UnknownResult).cause as Error).message;

/** The replica has acknowledged all that there is. */
function hasAll(info: string): boolean {
  const [, acknowledged] = /^slave0:.*offset=(\d+)/m.exec(info) ?? [];
  return acknowledged === /^master_repl_offset:(\d+)/m.exec(info)?.[1];
}

it('a grant or renewal that no replica has is unknown; every other result is known', async () => {
  const [held, free, given] = [acquisition(), acquisition(), acquisition()];
  await until(async () => {
    const { acquire } = await backend.execute({ acquire: [held, given] }, 1_000);
    return acquire.every(({ kind }) => kind === 'granted');
  });
  replica.kill('SIGSTOP');
  const answers = await backend.execute(
    { release: [given], renew: [held], acquire: [free, { ...held, holder: randomUUID() }] },
    1_000,
  );
  expect(answers).toMatchObject({
    release: [{ kind: 'released' }],
    renew: [{ kind: 'unknown' }],
    acquire: [{ kind: 'unknown' }, { kind: 'taken' }],
  });
  expect(reasonOf(answers.renew[0])).toBe(
    'only 0 of 1 replicas acknowledged it within 200 ms; see minReplicas',
  );
});

const register = (key: string) => backend.registerTicks(key, 1_000);
const pause = (key: string) => backend.setPaused(key, true, 1_000);
const resume = (key: string) => backend.setPaused(key, false, 1_000);

it.each([
  ['a registration', () => register(randomUUID()), register],
  ['a pause', register, pause],
  ['a resumption', pause, resume],
])('%s that no replica has rejects', async (_, before, change) => {
  const key = randomUUID();
  const isAcknowledged = (changing: Promise<unknown>) =>
    changing.then(
      () => true,
      () => false,
    );
  await until(() => isAcknowledged(before(key)));
  replica.kill('SIGSTOP');
  await expect(change(key)).rejects.toThrow('only 0 of 1 replicas acknowledged it');
  replica.kill('SIGCONT');
  await until(() => isAcknowledged(change(key)));
});

it('the end of a run that no replica has is unknown', async () => {
  const [run, held] = [acquisition(), acquisition()];
  const tick = { tickMs: Date.now(), maxEarlyMs: 1_000, staleAfterMs: 60_000 };
  await until(async () => {
    const { acquire } = await backend.execute({ acquire: [{ ...run, tick }, held] }, 1_000);
    return acquire.every(({ kind }) => kind === 'granted');
  });
  replica.kill('SIGSTOP');
  const ended = { ...run, hasEnded: true } as const;
  const { release } = await backend.execute({ release: [ended, held] }, 1_000);
  expect(release).toMatchObject([{ kind: 'unknown' }, { kind: 'released' }]);
  // The primary has it, but that changes nothing.
  const again = await backend.execute({ release: [ended] }, 1_000);
  expect(again.release[0]!.kind).toBe('unknown');
  replica.kill('SIGCONT');
  await until(
    async () => (await backend.execute({ release: [ended] }, 1_000)).release[0]!.kind !== 'unknown',
  );
});

it('a registration by another process counts only once replicas have it', async () => {
  const key = randomUUID();
  const other = redisBackend({ url: primary.url });
  try {
    await until(async () => hasAll(await admin.info('replication')));
    replica.kill('SIGSTOP');
    await other.registerTicks(key, 1_000);
    await expect(backend.registerTicks(key, 1_000)).rejects.toThrow('only 0 of 1 replicas');
  } finally {
    await other.close();
  }
});

it('a repeated registration, pause, resumption or end of a run writes, so that WAIT has something to wait for', async () => {
  const key = randomUUID();
  const run = acquisition();
  const tick = { tickMs: Date.now(), maxEarlyMs: 1_000, staleAfterMs: 60_000 };
  await until(async () => {
    const { acquire } = await backend.execute({ acquire: [{ ...run, tick }] }, 1_000);
    return acquire[0]!.kind === 'granted';
  });
  const offset = async () => Number(/^master_repl_offset:(\d+)/m.exec(await admin.info('replication'))?.[1]);
  // WAIT itself writes to the replicas.
  const other = redisBackend({ url: primary.url });
  const changes = [
    () => other.registerTicks(key, 5_000),
    () => other.setPaused(key, true, 5_000),
    () => other.setPaused(key, false, 5_000),
    () => other.execute({ release: [{ ...run, hasEnded: true }] }, 5_000),
  ];
  try {
    for (const change of changes) {
      await change();
      const before = await offset();
      await change();
      // A PING to the replicas, every ten seconds, is shorter.
      expect((await offset()) - before).toBeGreaterThan(30);
    }
  } finally {
    await other.close();
  }
});

it('a long replicaTimeoutMs does not cost the connection', async () => {
  replica.kill('SIGSTOP');
  const patient = redisBackend({ url: primary.url, minReplicas: 1, replicaTimeoutMs: 3_500 });
  try {
    const { acquire } = await patient.execute({ acquire: [acquisition()] }, 10_000);
    expect(reasonOf(acquire[0])).toContain('only 0 of 1 replicas acknowledged it within 3500 ms');
  } finally {
    await patient.close();
  }
});

it('replicas are also awaited for a script that had to be sent as text', async () => {
  await admin.script('FLUSH');
  await until(async () => hasAll(await admin.info('replication')));
  replica.kill('SIGSTOP');
  const { acquire } = await backend.execute({ acquire: [acquisition()] }, 1_000);
  expect(reasonOf(acquire[0])).toContain('only 0 of 1 replicas');
});

it('while replicas are away, requests of one batch do not wait for them one after the other', async () => {
  replica.kill('SIGSTOP');
  await backend.execute({ acquire: [acquisition()] }, 1_000);
  const asked = Array.from({ length: 100 }, () => backend.execute({ acquire: [acquisition()] }, 5_000));
  const reasons = (await Promise.all(asked)).map(({ acquire }) => reasonOf(acquire[0]));
  expect(reasons.filter((reason) => reason.includes('within 200 ms'))).toHaveLength(1);
  expect(reasons.filter((reason) => reason.includes('acknowledged it at once (while'))).toHaveLength(99);
});

it.each([{}, { minReplicas: 1 }])(
  'a replica in the place of the primary is reported: %j',
  async (options) => {
    const ofReplica = redisBackend({ url: replica.url, ...options });
    await expect(ofReplica.check!(1_000)).rejects.toThrow('this Redis server is a replica');
    // The connection is made anew after the first answer.
    for (let times = 0; times < 5; times += 1) {
      const { acquire } = await ofReplica.execute({ acquire: [acquisition()] }, 1_000);
      expect(reasonOf(acquire[0])).toContain('give the address of the primary');
    }
    await expect(ofReplica.appendHistory('key', 'text', 1_000)).rejects.toThrow(
      'this Redis server is a replica',
    );
    await ofReplica.close();
  },
);

it('a server that refuses WAIT is a configuration error', async () => {
  const user = randomUUID();
  await admin.call('ACL', 'SETUSER', user, 'on', 'nopass', '~*', '&*', '+@all', '-wait');
  const url = primary.url.replace('redis://', `redis://${user}:any@`);
  const refused = redisBackend({ url, minReplicas: 1 });
  await expect(refused.check!(1_000)).rejects.toThrow(LockConfigError);
  const { acquire } = await refused.execute({ acquire: [acquisition()] }, 1_000);
  expect((acquire[0] as UnknownResult).cause).toBeInstanceOf(LockConfigError);
  await refused.close();
  await admin.call('ACL', 'DELUSER', user);
});

it.each([
  [{ minReplicas: 0 }, 'at least 1'],
  [{ minReplicas: 1.5 }, 'a whole number of replicas'],
  [{ replicaTimeoutMs: 100 }, 'expected minReplicas together with replicaTimeoutMs'],
  [{ minReplicas: 1, replicaTimeoutMs: 0 }, 'a whole number of milliseconds from 1 to 5000'],
])('%j is refused', (options, reason) => {
  expect(() => redisBackend({ url: 'redis://localhost', ...options })).toThrow(reason);
});

it('minReplicas is rejected for a Cluster, whose client cannot send WAIT to the node of a key', () => {
  const client = new Cluster([{ host: '127.0.0.1', port: primary.port }], { lazyConnect: true });
  expect(() => redisBackend({ client, minReplicas: 1 })).toThrow('cannot send WAIT to the node of a key');
  client.disconnect();
});

it.each([
  ['a renewal', (held: AcquireRequest) => ({ renew: [held] }), 'renew'],
  ['an acquisition sent again', (held: AcquireRequest) => ({ acquire: [held] }), 'acquire'],
] as const)('%s that changes nothing counts only once replicas have the lock', async (_, requests, verb) => {
  const held = acquisition();
  const other = redisBackend({ url: primary.url });
  try {
    await until(async () => hasAll(await admin.info('replication')));
    replica.kill('SIGSTOP');
    const { acquire } = await other.execute({ acquire: [held] }, 1_000);
    expect(acquire[0]!.kind).toBe('granted');
    // It is the last thing that anybody writes, and not over this connection.
    const answers = await backend.execute(requests({ ...held, leaseMs: 10_000 }), 1_000);
    expect(answers[verb][0]!.kind).toBe('unknown');
    replica.kill('SIGCONT');
    await until(async () => {
      const later = await backend.execute(requests({ ...held, leaseMs: 10_000 }), 1_000);
      return later[verb][0]!.kind !== 'unknown';
    });
  } finally {
    await other.close();
  }
});
