import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { SingletonCronOptions } from '../../../lib/index.js';
import { PERSISTENT } from '../../services/redis-quorum.js';
import { startPostgres } from '../../services/postgres.js';
import { startRedis } from '../../services/redis-server.js';
import type { Service, ServiceOptions } from '../../services/service.js';
import { type Store, libsqlStore } from '../../support/stores.js';
import {
  CronReplicas,
  checkRuns,
  countOverlaps,
  restartServer,
  countSkipReasons,
} from '../scenarios/cron-replicas.js';
import { FAULTS, FaultyServer, withFaults, pickSome } from '../injection/faulty-server.js';
import { endAllWorkers } from '../../cluster/start-worker.js';

/**
 * Lets eight replicas with wrong clocks run a job while they are killed and stopped and their store is restarted, and
 * prints what became of each tick. Takes the seconds for each store and policy, and the stores.
 */
const seconds = Number(process.argv[2] ?? 300);
const names = process.argv[3] ?? 'redis,postgres,sqlite';

interface ReportStore {
  readonly store: Store;
  readonly restart: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

async function serverStore(
  start: (options?: ServiceOptions) => Promise<Service>,
  storeAt: (url: string) => Store,
): Promise<ReportStore> {
  const servers = [await start()];
  return {
    store: storeAt(servers[0]!.url),
    restart: () => restartServer(servers, start),
    stop: async () => {
      for (const server of servers.toReversed()) await server.stop();
    },
  };
}

const persistent = ['--appendonly', 'yes', '--appendfsync', 'always'];

const stores: Record<string, () => Promise<ReportStore>> = {
  redis: () =>
    serverStore(
      (options) => startRedis({ ...options, args: persistent }),
      (redis) => ({ redis }),
    ),
  /** Five servers, of which any two are killed, frozen or slow where others are restarted. */
  async redlock() {
    const servers = await Promise.all(Array.from({ length: 5 }, () => FaultyServer.start(PERSISTENT)));
    return {
      store: { quorum: { at: servers.map(({ url }) => url) } },
      restart: () =>
        withFaults(pickSome(servers, 2), { faults: pickSome(FAULTS, 2), forMs: Math.random() * 2_000 }),
      stop: async () => {
        for (const server of servers) await server.stop();
      },
    };
  },
  postgres: () => serverStore(startPostgres, (at) => ({ database: { type: 'postgres', at } })),
  async sqlite() {
    const folder = await mkdtemp(join(tmpdir(), 'cron-'));
    return {
      store: libsqlStore(join(folder, 'locks.db')),
      restart: async () => undefined, // It has no server.
      stop: async () => rmSync(folder, { recursive: true }),
    };
  },
};

const leaseMs = 800;
const policies: Record<string, SingletonCronOptions> = {
  skip: { leaseMs },
  retry: { leaseMs, onDeadRun: 'retry', maxAttempts: 20 },
  // Nothing here lasts as long, so only who dies between the end of a run and its confirmation has it repeated.
  'retry, long lease': { leaseMs: 4_000, onDeadRun: 'retry', maxAttempts: 20 },
};

const planFor = (store: Store, options: SingletonCronOptions) => ({
  ...{ store, options, namespace: randomUUID(), replicas: 8, mostPeriodsOff: 5 },
});

async function runWithFaults(store: ReportStore, policy: string, periodMs: number): Promise<object> {
  const options = policies[policy]!;
  const replicas = new CronReplicas({ ...planFor(store.store, options), periodMs, workMs: periodMs });
  await replicas.start();
  const fromMs = Math.ceil(Date.now() / periodMs) * periodMs;
  const done = await replicas.injectFaults(seconds * 1_000, store.restart);
  await sleep(options.leaseMs! * 4); // For what died last to be taken over.
  const toMs = Date.now() - 6 * periodMs;
  await sleep(6 * periodMs);
  await replicas.close();
  const due = Array.from(
    { length: Math.ceil((toMs - fromMs) / periodMs) },
    (_, index) => fromMs + index * periodMs,
  );
  const skipped = countSkipReasons(replicas, due);
  return {
    ...{ 'period, ms': periodMs, ...done, due: due.length },
    ...checkRuns(replicas.runs, options.maxAttempts ?? 1),
    overlaps: countOverlaps(replicas.runs),
    'skipped by': Object.entries(skipped)
      .map(([reason, count]) => `${reason} ${count}`)
      .join(', '),
  };
}

/** How many ticks over which all replicas were down are run when they are back. */
async function countMissedRuns(store: ReportStore, onMissed: 'once' | 'skip'): Promise<number> {
  const periodMs = 6_000;
  const plan = {
    ...planFor(store.store, { leaseMs, onMissed }),
    replicas: 4,
    mostPeriodsOff: 0,
    periodMs,
    workMs: 10,
  };
  const before = new CronReplicas(plan);
  await before.start();
  while (!before.runs.some(({ isRecorded }) => isRecorded)) await sleep(20);
  await before.killAll();
  // To just after a tick, so that none is due while they boot.
  await sleep(3 * periodMs + 100 - (Date.now() % periodMs));
  const after = new CronReplicas(plan);
  await after.start();
  await sleep(2 * periodMs);
  await after.close();
  return after.lateRuns.length;
}

/** Commands of the store for each tick of a job. */
async function countCommands(
  store: ReportStore,
  replicaCount: number,
  options: SingletonCronOptions,
): Promise<string> {
  if (!('redis' in store.store)) return '';
  const periodMs = 500;
  const redis = new Redis(store.store.redis);
  const plan = {
    ...planFor(store.store, options),
    replicas: replicaCount,
    mostPeriodsOff: 0,
    periodMs,
    workMs: 10,
  };
  const replicas = new CronReplicas(plan);
  await replicas.start();
  await sleep(2 * periodMs);
  const calls = async () =>
    [...(await redis.info('commandstats')).matchAll(/cmdstat_(evalsha|eval):calls=(\d+)/g)].reduce(
      (sum, [, , count]) => sum + Number(count),
      0,
    );
  const [callsBefore, runsBefore] = [await calls(), replicas.runs.length];
  await sleep(40 * periodMs);
  const [sent, ran] = [(await calls()) - callsBefore, replicas.runs.length - runsBefore];
  await replicas.close();
  await redis.quit();
  return (sent / ran).toFixed(2);
}

for (const name of names.split(',')) {
  const store = await stores[name]!();
  try {
    for (const policy of Object.keys(policies)) {
      for (const periodMs of [200, 1_000]) {
        console.log(name, policy, await runWithFaults(store, policy, periodMs));
      }
    }
    console.log(name, 'run after all were down over three ticks', {
      once: await countMissedRuns(store, 'once'),
      skip: await countMissedRuns(store, 'skip'),
    });
    if (name === 'redis') {
      console.log(name, 'scripts for each tick', {
        'skip, 1 replica': await countCommands(store, 1, {}),
        'skip, 8 replicas': await countCommands(store, 8, {}),
        'retry, 8 replicas': await countCommands(store, 8, { onDeadRun: 'retry' }),
      });
    }
  } finally {
    await endAllWorkers();
    await store.stop();
  }
}
