import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import type { Locks } from '../../lib/core/locks.js';
import { type EtcdCluster, startEtcdCluster } from '../services/etcd-cluster.js';
import { etcdctl } from '../services/etcd.js';
import { bareLocks } from '../support/bare-locks.js';
import { hostOf } from '../support/etcd.js';
import { onceReachable } from '../support/once-reachable.js';
import { until } from '../support/until.js';

const LEASE_MS = 30_000;
const TIMEOUT_MS = 120_000;
let cluster: EtcdCluster;
const opened: Locks[] = [];

const locksOn = (hosts: readonly string[] = cluster.hosts, backend: LockBackend = etcdBackend({ hosts })) => {
  const locks = bareLocks({ backend, namespace: 'cluster' });
  opened.push(locks);
  return locks;
};

/** The hosts with that of the member first, so that a new backend uses it. */
const hostsFrom = (url: string) => [url, ...cluster.hosts.filter((host) => host !== url)];

const acquireOnceReachable = (locks: Locks, key: string) =>
  onceReachable(() => locks.acquire(key, { leaseMs: LEASE_MS }));

/** A lock that others see, once they reach the cluster. */
const expectTaken = async (locks: Locks, key: string) =>
  expect(await onceReachable(() => locks.tryAcquire(key))).toBeNull();

beforeAll(async () => {
  cluster = await startEtcdCluster();
}, TIMEOUT_MS);
afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()));
  await cluster.heal();
}, TIMEOUT_MS);
afterAll(() => cluster.close(), TIMEOUT_MS);

describe('an etcd cluster of three members', () => {
  it(
    'keeps a lock and its order of tokens when the leader is killed',
    async () => {
      const leader = await cluster.leader();
      const [ours, theirs] = [locksOn(hostsFrom(leader.service.url)), locksOn()];
      const lock = await ours.acquire('killed', { leaseMs: LEASE_MS });
      await leader.kill();
      await cluster.leader();
      await expectTaken(theirs, 'killed');
      await onceReachable(() => lock.extend(LEASE_MS));
      await lock.release();
      const next = await acquireOnceReachable(theirs, 'killed');
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    },
    TIMEOUT_MS,
  );

  it(
    'is used through another member when one is frozen, and the waiter there gets the lock',
    async () => {
      const leader = await cluster.leader();
      const [ours, theirs] = [locksOn(hostsFrom(leader.service.url)), locksOn(hostsFrom(leader.service.url))];
      const lock = await ours.acquire('frozen', { leaseMs: LEASE_MS });
      const waiting = theirs.acquire('frozen', { leaseMs: LEASE_MS, waitMs: TIMEOUT_MS });
      await until(async () => (await ours.inspect('frozen'))?.queued === 1);
      await leader.freeze();
      // The release may be confirmed only when it is repeated through another member.
      void lock.release().catch(() => undefined);
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      await onceReachable(() => next.extend(LEASE_MS));
    },
    TIMEOUT_MS,
  );

  it(
    'grants nothing without a majority, and goes on when there is one again',
    async () => {
      const locks = locksOn();
      const lock = await acquireOnceReachable(locks, 'majority');
      const [first, second] = cluster.members;
      await Promise.all([first?.kill(), second?.kill()]);
      await expect(locks.acquire('other', { leaseMs: LEASE_MS, waitMs: 0 })).rejects.toThrow(
        LockUnavailableError,
      );
      expect(lock.isValid()).toBe(true);
      await Promise.all([first?.startAgain(), second?.startAgain()]);
      await cluster.leader();
      const other = await acquireOnceReachable(locks, 'other');
      expect(other.fencingToken).toBeGreaterThan(lock.fencingToken);
      await onceReachable(() => lock.extend(LEASE_MS));
    },
    TIMEOUT_MS,
  );

  it(
    'notifies a waiter although the history of its key was compacted',
    async () => {
      const [ours, theirs] = [locksOn(), locksOn()];
      const lock = await acquireOnceReachable(ours, 'compacted');
      const waiting = theirs.acquire('compacted', { leaseMs: LEASE_MS, waitMs: TIMEOUT_MS });
      await until(async () => (await ours.inspect('compacted'))?.queued === 1);
      const endpoint = `--endpoints=${cluster.hosts.map(hostOf).join(',')}`;
      const status = JSON.parse(await etcdctl(endpoint, 'get', 'nothing', '-w', 'json')) as {
        header: { revision: number };
      };
      await etcdctl(endpoint, 'compact', String(status.header.revision));
      await lock.release();
      expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
    },
    TIMEOUT_MS,
  );

  it(
    'forgets nothing when all members restart',
    async () => {
      const locks = locksOn();
      const lock = await acquireOnceReachable(locks, 'restarted');
      await Promise.all(cluster.members.map((member) => member.kill()));
      await Promise.all(cluster.members.map((member) => member.startAgain()));
      await cluster.leader();
      await expectTaken(locksOn(), 'restarted');
      await lock.release();
      const next = await acquireOnceReachable(locks, 'restarted');
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    },
    TIMEOUT_MS,
  );

  it(
    'keeps locks when the disk of one member is gone',
    async () => {
      const locks = locksOn();
      const lock = await acquireOnceReachable(locks, 'disk');
      const [, , lost] = cluster.members;
      await lost?.kill();
      await rm(join(lost?.service.dataDir ?? '', 'data'), { recursive: true, force: true });
      await expectTaken(locksOn(), 'disk');
      await onceReachable(() => lock.extend(LEASE_MS));
    },
    TIMEOUT_MS,
  );
});
