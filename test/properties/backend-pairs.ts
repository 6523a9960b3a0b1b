import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { DataSource, In } from 'typeorm';
import { MemoryBackend } from '../../lib/backends/memory/memory-backend.js';
import { redisBackend } from '../../lib/backends/redis/single/redis-backend.js';
import { distributedLockEntity } from '../../lib/backends/typeorm/index.js';
import type { TickState } from '../../lib/core/tick.js';
import { SettableClock } from '../../lib/testing/settable-clock.js';
import { serviceUrl } from '../support/environment.js';
import { forgetEtcdKey } from '../support/etcd.js';
import { QueueingBackend } from '../support/queueing-backend.js';
import {
  type Store,
  backendOn,
  betterSqlite3Store,
  dataSourceOptions,
  etcdStore,
  mariadbStore,
  postgresStore,
  redisStore,
  zookeeperStore,
} from '../support/stores.js';
import { forgetZookeeperKey } from '../support/zookeeper.js';
import type { PropertyRunConfig } from './property-runs.js';
import type { BackendPair } from './backend-comparison.js';
import { timedRedis } from './timed-redis.js';

/** A stage that must be closed. */
export interface OpenBackendPair extends BackendPair {
  readonly config: PropertyRunConfig;
  close(): Promise<void>;
}

const LONG_MS = 3_600_000;
/** Of ZooKeeper, for these leases. */
const LONG_SESSION_MS = 2 * LONG_MS;
/** Over before the next scene. */
const SHORT_MS = 1;
const PAUSE_MS = 4;

/** The keys that a store knows a lock by. */
const redisKeys = (key: string) => ['lock', 'line', 'waiting', 'notes'].map((part) => `{${key}}:${part}`);

/**
 * The real script, in time that we turn, against the line store: all answers must be the same, to the number of each
 * token and what is left of each lease. Not compared: how far a tick lies ahead, which each rounds in its own way, and
 * until when a run was alive that nobody may take over.
 */
async function openTimedRedisPair(): Promise<OpenBackendPair> {
  let nowUs = Date.UTC(2026, 0, 1) * 1_000;
  const url = serviceUrl('TEST_REDIS_URL');
  const admin = new Redis(url);
  const client = await timedRedis(url, () => nowUs);
  const backend = redisBackend({ client });
  return {
    backend,
    reference: new QueueingBackend(() => nowUs),
    begin: () => Math.ceil(nowUs / 1_000),
    config: { leasesMs: [50, 400, 30_000], queueTimesMs: [30_000, 60_000], moreTokens: [5] },
    pass: async (step) => {
      // Within a lease, past the time for which a key is kept, past a short lease, and now and then past all of them.
      nowUs += [1, 1_000, 20_000, 260_000, 7, 450_000, 100, 31_000_000][(step * 5 + 3) % 8]!;
    },
    forget: async (keys) => {
      await admin.del(...keys.flatMap(redisKeys));
    },
    comparable: (result) => {
      if (typeof result !== 'object' || result === null) return result;
      const {
        willBeNotified: _,
        aheadMs: __,
        aliveUntilMs: ___,
        ...rest
      } = result as { willBeNotified?: true; aheadMs?: number; aliveUntilMs?: number };
      return rest;
    },
    close: async () => {
      await backend.close();
      await admin.quit();
    },
  };
}

/**
 * A store with a clock of its own against the memory backend: leases are far longer than the play, or over before the
 * next scene. Not compared: how much of a lease is left, the numbers of tokens (but whether they grow, and which grant
 * they are of), and what is told of others who wait.
 */
async function openBackendPair(store: Store): Promise<OpenBackendPair> {
  const clock = new SettableClock(Date.now());
  const backend = backendOn(store);
  const keyRemover = await keyRemoverOf(store);
  return {
    backend,
    reference: new MemoryBackend({ clock }),
    begin: () => {
      clock.setWall(Date.now());
      return clock.wallMs();
    },
    config: {
      leasesMs: 'etcd' in store || 'zookeeper' in store ? [LONG_MS] : [SHORT_MS, LONG_MS],
      queueTimesMs: [],
      moreTokens: 'redis' in store ? [5] : [],
    },
    pass: async () => {
      clock.freeze(1_000);
      await sleep(PAUSE_MS); // The only way to see a lease end by the store's clock is to let that time pass.
    },
    forget: keyRemover.forget,
    comparable: looselyComparable,
    close: async () => {
      await backend.close();
      await keyRemover.close();
    },
  };
}

function keyRemoverOf(store: Store): KeyRemover | Promise<KeyRemover> {
  if ('redis' in store) return redisKeyRemover(store.redis);
  if ('etcd' in store) return keyRemover((key) => forgetEtcdKey(store.etcd[0] ?? '', key));
  if ('zookeeper' in store)
    return keyRemover((key) => forgetZookeeperKey(store.zookeeper.servers.join(','), key));
  return sqlKeyRemover(store);
}

const keyRemover = (forget: (key: string) => Promise<void>): KeyRemover => ({
  forget: async (keys) => {
    for (const key of keys) await forget(key);
  },
  close: () => Promise.resolve(),
});

interface KeyRemover {
  forget(keys: readonly string[]): Promise<void>;
  close(): Promise<unknown>;
}

function redisKeyRemover(url: string): KeyRemover {
  const admin = new Redis(url);
  return {
    forget: async (keys) => {
      await admin.del(...keys.flatMap(redisKeys));
    },
    close: () => admin.quit(),
  };
}

async function sqlKeyRemover(store: Store): Promise<KeyRemover> {
  const options = dataSourceOptions(store);
  const entity = distributedLockEntity({ type: options.type as 'postgres' });
  const database = await new DataSource({ ...options, entities: [entity] }).initialize();
  return {
    forget: async (keys) => {
      await database.getRepository(entity).delete({ key: In([...keys]) });
    },
    close: () => database.destroy(),
  };
}

function looselyComparable(result: unknown): unknown {
  if (typeof result !== 'object' || result === null) return result;
  const { kind, isNew, isSame, attempt, reason, unfinishedMs, retryInMs, holder, instance } =
    result as Record<string, unknown>;
  // A store may leave the wish for more tokens be; if it does not, they are new.
  if (kind === 'renewed') return { kind, isRight: isNew !== false };
  const compared = { kind, isNew, isSame, attempt, reason, unfinishedMs, holder, instance };
  return { ...compared, mayRetry: retryInMs !== undefined, ...ticksOf(result) };
}

/** A registration sets the tick of attempt 0, each store by its own clock. */
function ticksOf(result: Partial<TickState>): object {
  if (result.nowMs === undefined) return {};
  const { claimed, heldForMs = 0, isPaused = false } = result;
  const tickMs = claimed?.attempt === 0 ? undefined : claimed?.tickMs;
  return { claimed: claimed && { ...claimed, tickMs }, isHeld: heldForMs > 0, isPaused };
}

/** So that no two runs share a key. */
export const uniqueRunName = () => `play:${randomUUID()}`;

/** Each store beside its reference. SQLite keeps its file in the folder. */
export const backendPairsIn = (
  folder: string,
): readonly (readonly [name: string, open: () => Promise<OpenBackendPair>])[] => [
  ['timed redis', openTimedRedisPair],
  ['redis', () => openBackendPair(redisStore())],
  ['etcd', () => openBackendPair(etcdStore())],
  ['zookeeper', () => openBackendPair(zookeeperStore(LONG_SESSION_MS))],
  ['postgres', () => openBackendPair(postgresStore())],
  ['mariadb', () => openBackendPair(mariadbStore())],
  ['better-sqlite3', () => openBackendPair(betterSqlite3Store(join(folder, 'play.db')))],
];
