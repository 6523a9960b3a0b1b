import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { Argument, Command } from 'commander';
import { endAllWorkers, startWorker } from '../../cluster/start-worker.js';
import { startRedisQuorum, stopAll } from '../../services/redis-quorum.js';
import { bareLocks } from '../../support/bare-locks.js';
import { compile } from '../../support/compiled-code.js';
import { longestGapMs, longestWaitMs, permitOverlaps, writerOverlaps } from '../../support/kinds/holds.js';
import { SUM, openAccounts, sumOf, transferAll } from '../../support/kinds/transfers.js';
import { machineMs } from '../../support/machine-clock.js';
import {
  type Store,
  backendOn,
  betterSqlite3Store,
  etcdStore,
  mariadbStore,
  postgresStore,
  redisStore,
  zookeeperStore,
} from '../../support/stores.js';
import { disturbContenders, localContenders, startContender } from '../scenarios/kind-contenders.js';

/**
 * Twenty processes contend for permits, and to read and to write one key, while one after the other is killed or stopped;
 * then eight processes transfer between five accounts. Prints what it saw. Needs the stores of the specs. In memory, one
 * process has all locks.
 */
const program = new Command('kinds')
  .addArgument(
    new Argument('<store>').choices([
      ...['redis', 'quorum', 'postgres', 'mariadb', 'better-sqlite3', 'etcd', 'zookeeper', 'memory'],
    ]),
  )
  .option('--minutes <number>', 'how long processes are killed and stopped', Number, 2)
  .option('--transfers <number>', 'of all processes together', Number, 10_000)
  .parse();
const [name] = program.args as [string];
const { minutes, transfers } = program.opts<{ minutes: number; transfers: number }>();

const [PERMITS, LEASE_MS, CONTENDERS, TRANSFERRING] = [5, 3_000, 20, 8];
const CALLERS = [
  ...Array.from({ length: 2 }, () => ({ permits: PERMITS })),
  ...(['read', 'read', 'write'] as const).map((mode) => ({ mode })),
];

const folder = await mkdtemp(join(tmpdir(), 'kinds-'));
const servers = name === 'quorum' ? await startRedisQuorum(5) : [];
const code = await compile();
await code.bundleWorkers();
process.env['TEST_CODE'] = code.folder;
const stores: Record<string, () => Store> = {
  redis: redisStore,
  quorum: () => ({ quorum: { at: servers.map(({ url }) => url) } }),
  postgres: postgresStore,
  mariadb: () => mariadbStore(),
  etcd: etcdStore,
  zookeeper: () => zookeeperStore(),
  'better-sqlite3': () => betterSqlite3Store(join(folder, 'locks.db')),
};
const store = stores[name]?.();
const namespace = randomUUID();
const plan = { namespace, leaseMs: LEASE_MS, callers: CALLERS };
const local = store ? undefined : localContenders(plan);
try {
  console.table(await contention());
  console.table(await transferring());
} finally {
  await endAllWorkers();
  await stopAll(servers);
  await code.remove();
  await rm(folder, { recursive: true, force: true });
}

async function contention(): Promise<Record<string, number>> {
  const start = local ? local.start : () => startContender(store!, plan);
  const seen = await disturbContenders(start, { contenders: CONTENDERS, minutes, leaseMs: LEASE_MS });
  const modeOf = (mode: 'read' | 'write') => seen.undisturbedHolds.filter((hold) => hold.mode === mode);
  const permits = seen.holds.filter(({ mode }) => mode === undefined);
  const withMode = seen.holds.filter(({ mode }) => mode !== undefined);
  const waitOf = (holds: typeof seen.holds) => Math.round(longestWaitMs(holds));
  return {
    ...{ minutes, kills: seen.kills, stops: seen.stops, 'processes that ended badly': seen.badEnds },
    'permits held': permits.length,
    'permits held twice': permitOverlaps(permits).length,
    'permits outside of the range': permits.filter(({ permit }) => permit < 0 || permit >= PERMITS).length,
    'longest wait for a permit, ms': waitOf(seen.undisturbedHolds.filter(({ mode }) => mode === undefined)),
    'longest time that a permit was not in use, ms': Math.round(longestGapMs(permits, PERMITS)),
    'read locks held': withMode.filter(({ mode }) => mode === 'read').length,
    'write locks held': withMode.filter(({ mode }) => mode === 'write').length,
    'holders beside a writer': writerOverlaps(withMode).length,
    'longest wait of a reader, ms': waitOf(modeOf('read')),
    'longest wait of a writer, ms': waitOf(modeOf('write')),
    'acquisitions that failed': seen.failures.length,
    'lease, ms': LEASE_MS,
    'until one caller had all permits and the write lock, ms': Math.round(await takeAll()),
  };
}

/** What was lost in the crashes is free when its lease has ended. */
async function takeAll(): Promise<number> {
  const locks = local?.locks ?? bareLocks({ backend: backendOn(store!), namespace });
  const fromMs = machineMs();
  const wanted = [...Array.from({ length: PERMITS }, () => ['pdf', { permits: PERMITS }] as const)];
  const held = await Promise.all([
    ...wanted.map(([key, options]) => locks.acquire(key, { ...options, waitMs: 60_000 })),
    locks.acquire('catalog', { mode: 'write', waitMs: 60_000 }),
  ]);
  const tookMs = machineMs() - fromMs;
  await Promise.all(held.map((lock) => lock.release()));
  if (!local) await locks.close();
  return tookMs;
}

async function transferring(): Promise<Record<string, number>> {
  const accounts = openAccounts(folder);
  const task = { store, namespace, folder: accounts, transfers: Math.ceil(transfers / TRANSFERRING) };
  const fromMs = machineMs();
  const ends = await Promise.all(
    Array.from({ length: TRANSFERRING }, () =>
      local ? transferAll(task, local.locks).then(() => 0) : startWorker('transfer', task).ended,
    ),
  );
  return {
    transfers: task.transfers * TRANSFERRING,
    'processes that ended badly': ends.filter((end) => end !== 0).length,
    'sum before': SUM,
    'sum after': sumOf(accounts),
    seconds: Math.round((machineMs() - fromMs) / 1_000),
  };
}
