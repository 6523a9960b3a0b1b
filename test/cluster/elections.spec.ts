import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { startRedis } from '../services/redis-server.js';
import { type Store, etcdStore, postgresStore, redisStore, zookeeperStore } from '../support/stores.js';
import { until } from '../support/until.js';
import { killLeaders, countTermsNotGrowing, countOverlaps } from '../faults/scenarios/kill-leaders.js';
import { type Worker, endAllWorkers, startWorker } from './start-worker.js';

interface Told {
  readonly isReady?: true;
  readonly term?: string;
  readonly isLeader?: boolean;
}

afterAll(endAllWorkers);

const start = (store: Store, namespace: string, leaseMs: number) =>
  startWorker<Told>('candidate', { store, namespace, leaseMs });
const terms = ({ messages }: Worker<Told>) =>
  messages.flatMap(({ term }) => (term === undefined ? [] : BigInt(term)));
const isReady = ({ messages }: Worker<Told>) => messages.some((told) => told.isReady);

/** Nobody waits that long in a spec: who leads next was handed the leadership. */
const ENDLESS_MS = 3_600_000;

const LEASE_MS = 1_500;

const stores: [string, () => Store, leaseMs: number, endlessMs?: number][] = [
  ['redis', redisStore, LEASE_MS],
  ['postgres', postgresStore, LEASE_MS],
  // Its shortest lease.
  ['etcd', etcdStore, 2_000],
  // A leader that was killed is replaced when its session has ended.
  ['zookeeper', () => zookeeperStore(4_000), LEASE_MS, 3_000],
];

describe.each(stores)('on %s', (_, storeOf, leaseMs, endlessMs = ENDLESS_MS) => {
  it.concurrent(
    'a leader that is killed has a successor, with a larger term',
    async () => {
      const [store, namespace] = [storeOf(), randomUUID()];
      const leader = start(store, namespace, leaseMs);
      await until(() => terms(leader).length === 1);
      const standby = start(store, namespace, leaseMs);
      await until(() => isReady(standby));
      leader.process.kill('SIGKILL');
      await until(() => terms(standby).length === 1);
      expect(terms(standby)[0]! > terms(leader)[0]!).toBe(true);
    },
    60_000,
  );

  it.concurrent(
    'a leader that resigns or closes hands the leadership over',
    async () => {
      const [store, namespace] = [storeOf(), randomUUID()];
      const leader = start(store, namespace, endlessMs);
      await until(() => terms(leader).length === 1);
      const standby = start(store, namespace, endlessMs);
      await until(() => isReady(standby));
      leader.process.send('resign');
      await until(() => terms(standby).length === 1);
      expect(terms(leader)).toHaveLength(1);
      standby.process.send('close');
      await until(() => terms(leader).length === 2);
      expect(await standby.ended).toBe(0);
    },
    60_000,
  );

  it.concurrent(
    'a leader that was stopped past its lease knows in its first line that it leads no more',
    async () => {
      const [store, namespace] = [storeOf(), randomUUID()];
      const leader = start(store, namespace, leaseMs);
      await until(() => terms(leader).length === 1);
      leader.process.kill('SIGSTOP');
      leader.process.send('look');
      const next = start(store, namespace, leaseMs);
      await until(() => terms(next).length === 1);
      leader.process.kill('SIGCONT');
      await until(() => leader.messages.some(({ isLeader }) => isLeader !== undefined));
      expect(leader.messages.at(-1)).toEqual({ isLeader: false });
    },
    60_000,
  );
});

it.concurrent(
  'candidates outlive a restart of the store, and one of them leads, with a larger term',
  async () => {
    const server = await startRedis();
    const [store, namespace] = [{ redis: server.url }, randomUUID()];
    const replicas = [start(store, namespace, LEASE_MS), start(store, namespace, LEASE_MS)];
    await until(() => replicas.every(isReady) && replicas.flatMap(terms).length === 1);
    const [before] = replicas.flatMap(terms);
    server.kill('SIGKILL');
    await server.exited;
    const late = start(store, namespace, LEASE_MS); // Comes to a closed door.
    await until(() => isReady(late));
    const again = await startRedis({ port: server.port, dataDir: server.dataDir });
    try {
      await until(() => [...replicas, late].flatMap(terms).length >= 2);
      expect([...replicas, late].flatMap(terms).every((term) => term >= before!)).toBe(true);
    } finally {
      await again.stop();
      await server.stop();
    }
  },
  60_000,
);

it('of many elections each has one leader at most, while those who lead are killed in turn', async () => {
  const namespace = randomUUID();
  const plan = { store: redisStore(), namespace, elections: 60, replicas: 3, leaseMs: LEASE_MS, kills: 4 };
  const killed = await killLeaders(plan);
  expect(killed.terms).toHaveLength(60);
  expect(killed.failOversMs.every((ms) => ms < Infinity)).toBe(true);
  expect(countOverlaps(killed)).toBe(0);
  expect(countTermsNotGrowing(killed)).toBe(0);
}, 120_000);
