import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { LockHandle } from '../../lib/core/leases/lock-handle.js';
import { bareLocks } from '../support/bare-locks.js';
import { startRedis } from '../services/redis-server.js';
import { until } from '../support/until.js';

it('a connection whose server has become a replica is replaced', async () => {
  const server = await startRedis();
  const admin = new Redis(server.url);
  const backend = redisBackend({ url: server.url });
  const ask = async () => {
    const request = { key: randomUUID(), holder: 'holder', leaseMs: 10_000, instance: 'spec' };
    const { acquire } = await backend.execute({ acquire: [request] }, 5_000);
    return acquire[0]!.kind;
  };
  const connections = async () => {
    const clients = (await admin.client('LIST')) as string;
    return [...clients.matchAll(/^id=(\d+) /gm)].map(([, id]) => Number(id));
  };
  try {
    expect(await ask()).toBe('granted');
    const before = await connections();
    await admin.replicaof('127.0.0.1', 1);
    expect(await ask()).toBe('unknown');
    await until(async () => Math.max(...(await connections())) > Math.max(...before));
    await admin.replicaof('NO', 'ONE');
    await until(async () => (await ask()) === 'granted');
  } finally {
    await backend.close();
    await admin.quit();
    await server.stop();
  }
});

it('a backend that was closed while its server was away reopens with the next request', async () => {
  const server = await startRedis();
  const backend = redisBackend({ url: server.url });
  const ask = async () => {
    const request = { key: randomUUID(), holder: 'holder', leaseMs: 10_000, instance: 'spec' };
    return (await backend.execute({ acquire: [request] }, 5_000)).acquire[0]!.kind;
  };
  expect(await ask()).toBe('granted');
  server.kill('SIGKILL');
  await server.exited;
  await until(async () => (await ask()) === 'unknown');
  const open = ask();
  await backend.close();
  expect(await open).toBe('unknown');
  const again = await startRedis({ port: server.port, dataDir: server.dataDir });
  try {
    await until(async () => (await ask()) === 'granted');
  } finally {
    await backend.close();
    await again.stop();
    await server.stop();
  }
});

it('a server that loads its data is used as soon as it is ready, whatever loading time it announced', async () => {
  const first = await startRedis();
  const { port, dataDir, url } = first;
  const writer = new Redis(url);
  await writer.eval("for i = 1, 20000 do redis.call('SET', 'some' .. i, 'of its data') end", 0);
  await writer.save();
  writer.disconnect();
  first.kill('SIGKILL');
  await first.exited;
  const args = ['--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'];
  const starting = startRedis({ port, dataDir, args });
  const admin = new Redis(url, { enableReadyCheck: false, maxRetriesPerRequest: null });
  admin.on('error', () => undefined);
  const announcesLongLoading = async () =>
    Number(/loading_eta_seconds:(\d+)/.exec(await admin.info('persistence').catch(() => ''))?.[1]) > 10;
  await until(announcesLongLoading);
  // By default ioredis waits as long as the server announces, at most ten seconds; this client at most three.
  const patient = new Redis(url, { connectionName: 'patient', maxLoadingRetryTime: 3_000 });
  const backend = redisBackend({ options: { host: '127.0.0.1', port, connectionName: 'ours' } });
  const claim = { key: randomUUID(), leaseMs: 10_000, instance: 'spec' };
  const ask = async () => {
    const request = { ...claim, holder: randomUUID() };
    return (await backend.execute({ acquire: [request] }, 5_000)).acquire[0]!.kind;
  };
  void ask();
  try {
    await until(async () => {
      const clients = String(await admin.client('LIST')).split('\n');
      const hasReceived = (name: string) =>
        clients.some((line) => line.includes(`name=${name} `) && line.includes('cmd=info'));
      return hasReceived('patient') && hasReceived('ours');
    });
    await admin.config('SET', 'key-load-delay', 0);
    await until(async () => (await ask()) !== 'unknown');
    expect(patient.status).toBe('connect');
  } finally {
    await backend.close();
    patient.disconnect();
    admin.disconnect();
    await (await starting).stop();
    await first.stop();
  }
});

it('a server may forget scripts at any time', async () => {
  const server = await startRedis();
  const admin = new Redis(server.url);
  const forgetting = setInterval(() => void admin.script('FLUSH'), 2);
  const replicas = Array.from({ length: 4 }, () =>
    bareLocks({ backend: redisBackend({ url: server.url }), namespace: 'lock' }),
  );
  let inside = 0;
  const held: number[] = [];
  try {
    await Promise.all(
      replicas.map(async (locks) => {
        for (let turn = 0; turn < 25; turn += 1) {
          await locks.withLock('key', { waitMs: 60_000 }, async () => {
            held.push((inside += 1));
            await new Promise(setImmediate);
            inside -= 1;
          });
        }
      }),
    );
    expect(held).toEqual(Array.from({ length: 100 }, () => 1));
    const sent = await admin.info('commandstats');
    expect(Number(/cmdstat_eval:calls=(\d+)/.exec(sent)?.[1])).toBeGreaterThan(4);
  } finally {
    clearInterval(forgetting);
    await Promise.all(replicas.map((locks) => locks.close()));
    await admin.quit();
    await server.stop();
  }
});

/** FAILOVER pauses writes like this until the replica has everything. A PING is answered meanwhile. */
it.each(['WRITE', 'ALL'])('callers outlast a pause of %s', async (commands) => {
  const server = await startRedis();
  const admin = new Redis(server.url);
  const locks = bareLocks({ backend: redisBackend({ url: server.url }), namespace: 'spec' });
  try {
    await (await locks.acquire('before')).release();
    await admin.call('CLIENT', 'PAUSE', 1_500, commands);
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 600_000 };
    const [lock, run] = await Promise.all([
      locks.acquire('during', { waitMs: 60_000 }),
      locks.jobs.claimTick('job', { tick }),
      locks.jobs.setPaused('another', true),
    ]);
    expect(lock.isValid()).toBe(true);
    expect(run).toBeInstanceOf(LockHandle);
  } finally {
    await locks.close();
    await admin.quit();
    await server.stop();
  }
});
