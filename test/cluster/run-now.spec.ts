import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { manualStoreKey } from '../../lib/core/store-key.js';
import { type CronRun, CronRuns, DistributedLockModule, type GuardOptions } from '../../lib/index.js';
import { startRedisQuorum } from '../services/redis-quorum.js';
import { Gate } from '../support/gate.js';
import {
  backendOn,
  betterSqlite3Store,
  etcdStore,
  mariadbStore,
  postgresStore,
  redisStore,
  zookeeperStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const folder = tempFolder();
const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

type OpenBackend = () => LockBackend;

const stores: [name: string, start: () => OpenBackend | Promise<OpenBackend>][] = [
  [
    'memory',
    () => {
      const shared = new MemoryBackend();
      return () => shared;
    },
  ],
  ['redis', () => () => backendOn(redisStore())],
  [
    'a quorum',
    async () => {
      const servers = await startRedisQuorum(3);
      for (const server of servers) ends.push(() => server.stop());
      const at = servers.map(({ url }) => url);
      return () => backendOn({ quorum: { at } });
    },
  ],
  ['etcd', () => () => backendOn(etcdStore())],
  ['zookeeper', () => () => backendOn(zookeeperStore())],
  ['postgres', () => () => backendOn(postgresStore())],
  ['mariadb', () => () => backendOn(mariadbStore())],
  ['sqlite', () => () => backendOn(betterSqlite3Store(join(folder, 'locks.db')))],
];

/** A call of its timer claims the tick of the last full hour, which is not too old. */
const HOURLY: GuardOptions = { cronTime: '0 * * * *', timeZone: 'UTC', onDeadRun: 'retry' };

describe.each(stores)('on %s', (_, start) => {
  /** Replicas with the same job, and what has run in any of them. */
  async function bootReplicas(options: GuardOptions = HOURLY) {
    const open = await start();
    const namespace = randomUUID();
    const started: { instance: string; run: CronRun }[] = [];
    const job = { work: (_run: CronRun): unknown => undefined };
    const reads = { count: 0 };
    const backends = new Set<LockBackend>();
    const openCounted = () => {
      const backend = open();
      if (backends.has(backend)) return backend;
      backends.add(backend);
      const readTicks = backend.readTicks.bind(backend);
      return Object.assign(backend, {
        readTicks: async (...args: Parameters<LockBackend['readTicks']>) => {
          const state = await readTicks(...args);
          if (args[0] === manualStoreKey(namespace, 'job')) reads.count += 1;
          return state;
        },
      });
    };
    const boot = async (instance: string) => {
      const shutdown = { drainMs: 0, abortGraceMs: 0 };
      const imports = [
        DistributedLockModule.forRoot({ backend: openCounted(), namespace, instance, shutdown }),
      ];
      const app: TestingModule = await Test.createTestingModule({ imports }).compile();
      await app.init();
      let closing: Promise<void> | undefined;
      const close = () => (closing ??= app.close());
      ends.push(close);
      const cronRuns = app.get(CronRuns);
      const onTick = cronRuns.guard('job', options, async (run) => {
        started.push({ instance, run });
        await job.work(run);
      });
      return { cronRuns, onTick, close };
    };
    return { replicas: [await boot('one'), await boot('two')] as const, started, job, reads };
  }

  it('calls of two replicas at once are one run, and a later call is another', async () => {
    const { replicas, started, job, reads } = await bootReplicas();
    for (let round = 1; round <= 10; round += 1) {
      // A call that looks at the job only after the run has ended is a later one.
      const readBefore = reads.count;
      job.work = () => until(() => reads.count >= readBefore + 2);
      const [one, two] = await Promise.all(replicas.map(({ cronRuns }) => cronRuns.runNow('job')));
      expect(started).toHaveLength(round);
      expect(one!.fencingToken).toBe(two!.fencingToken);
      expect([one, two]).toContainEqual(expect.objectContaining({ outcome: 'completed', isManual: true }));
      // The release may still be on its way, and a call that comes before it gets the run that has ended.
      await until(async () => (await replicas[0].cronRuns.jobs())[0]!.running.length === 0);
    }
    const tokens = started.map(({ run }) => run.fencingToken);
    expect(tokens.every((token, index) => index === 0 || token > tokens[index - 1]!)).toBe(true);
  });

  it('with overlap, calls at once are one run too', async () => {
    const { replicas, started, job } = await bootReplicas({ ...HOURLY, overlap: 'allow' });
    const gate = new Gate();
    job.work = () => gate.passed;
    const calls = replicas.map(({ cronRuns }) => cronRuns.runNow('job'));
    await Promise.race(calls);
    expect(started).toHaveLength(1);
    const { instance } = started[0]!;
    const running = async () => (await replicas[0].cronRuns.jobs())[0]!.running;
    // Runs that may overlap are found by their history, which is written in the background.
    await until(async () => (await running()).length > 0);
    expect(await running()).toMatchObject([{ instance, outcome: 'running', isManual: true }]);
    // A planned tick may overlap with it.
    const planned = replicas[0].onTick();
    await until(() => started.length === 2);
    gate.open();
    await planned;
    const records = await Promise.all(calls);
    expect(new Set(records.map(({ fencingToken }) => fencingToken)).size).toBe(1);
  });

  it('a call during a planned run starts none, and returns the record of that run', async () => {
    const { replicas, started, job } = await bootReplicas();
    const gate = new Gate();
    job.work = () => gate.passed;
    const planned = replicas[0].onTick();
    await until(() => started.length === 1);
    const [info] = await replicas[1].cronRuns.jobs();
    expect(info).toMatchObject({
      key: 'job',
      schedule: '0 * * * *',
      isPaused: false,
      missedTick: null,
    });
    expect(info!.running).toMatchObject([{ instance: 'one', outcome: 'running' }]);
    const { fencingToken } = started[0]!.run;
    const other = { instance: 'one', outcome: 'running', fencingToken, isManual: false };
    expect(await replicas[1].cronRuns.runNow('job')).toMatchObject(other);
    gate.open();
    await planned;
    expect(started).toHaveLength(1);
  });

  it('a planned tick that a manual run has kept from running runs after it, and once', async () => {
    const { replicas, started, job } = await bootReplicas();
    const gate = new Gate();
    job.work = () => gate.passed;
    const call = replicas[0].cronRuns.runNow('job');
    await until(() => started.length === 1);
    await Promise.all(replicas.map(({ onTick }) => onTick()));
    expect(started).toHaveLength(1);
    gate.open();
    const { tick } = await call;
    await until(() => started.length === 2);
    await Promise.all(replicas.map(({ onTick }) => onTick()));
    expect(started).toHaveLength(2);
    expect(started[1]!.run.tick).not.toEqual(tick);
  });

  it('a dead run that is too old to be retried is not retried after a manual run, and keeps no tick from running', async () => {
    const { replicas, started, job } = await bootReplicas({
      ...{
        cronTime: '* * * * * *',
        timeZone: 'UTC',
        onDeadRun: 'retry',
        leaseMs: 3_000,
        staleAfterMs: 1_500,
      },
    });
    const [one, two] = replicas;
    job.work = ({ signal }) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
    const interrupted = one.onTick().catch(() => undefined);
    await until(() => started.length === 1);
    await one.close();
    await interrupted;
    const diedAtMs = Date.now();
    job.work = () => undefined;
    await until(() => Date.now() > diedAtMs + 2_000);
    expect(await two.cronRuns.runNow('job')).toMatchObject({
      outcome: 'completed',
      attempt: 1,
      isManual: true,
    });
    await two.onTick();
    await until(() => started.length >= 3);
    expect(started.map(({ run }) => run.attempt)).toEqual([1, 1, 1]);
    const [dead, , next] = started.map(({ run }) => run.tick.getTime());
    expect(next).toBeGreaterThan(dead!);
  });

  it('a planned tick also runs after the manual run of a process whose scheduler does not fire the job', async () => {
    const { replicas, started, job } = await bootReplicas();
    const gate = new Gate();
    job.work = () => gate.passed;
    const call = replicas[0].cronRuns.runNow('job');
    await until(() => started.length === 1);
    await replicas[1].onTick();
    gate.open();
    await call;
    await until(() => started.length === 2);
    expect(started.map(({ instance }) => instance)).toEqual(['one', 'two']);
    await replicas[1].onTick();
    expect(started).toHaveLength(2);
  });
});
