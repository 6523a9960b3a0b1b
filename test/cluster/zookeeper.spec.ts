import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import type { Locks } from '../../lib/core/locks.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { type ZookeeperEnsemble, startZookeeperEnsemble } from '../services/zookeeper-ensemble.js';
import { TICK_TIME_MS } from '../services/zookeeper.js';
import { bareLocks } from '../support/bare-locks.js';
import { onceReachable } from '../support/once-reachable.js';
import { until } from '../support/until.js';

const LEASE_MS = 30_000;
const SHORT_SESSION_MS = 4_000;
const SHORT_LEASE_MS = 3_000;
const TIMEOUT_MS = 120_000;
let ensemble: ZookeeperEnsemble;
const opened: { close(): Promise<unknown> }[] = [];

const locksOn = (servers: readonly string[] = ensemble.servers, sessionTimeoutMs = 40_000) => {
  const backend = zookeeperBackend({ servers, sessionTimeoutMs, tickTimeMs: TICK_TIME_MS });
  const locks = bareLocks({ backend, namespace: 'ensemble' });
  opened.unshift(locks);
  return locks;
};

/** The servers with that of the member first, so that a new backend uses it. */
const serversFrom = (url: string) => [url, ...ensemble.servers.filter((server) => server !== url)];

const acquireOnceReachable = (locks: Locks, key: string, leaseMs = LEASE_MS) =>
  onceReachable(() => locks.acquire(key, { leaseMs }));

const expectTaken = async (locks: Locks, key: string) =>
  expect(await onceReachable(() => locks.tryAcquire(key, { leaseMs: LEASE_MS }))).toBeNull();

beforeAll(async () => {
  ensemble = await startZookeeperEnsemble();
}, TIMEOUT_MS);
afterEach(async () => {
  await ensemble.heal();
  for (const one of opened.splice(0)) await one.close();
}, TIMEOUT_MS);
afterAll(() => ensemble.close(), TIMEOUT_MS);

describe('a ZooKeeper ensemble of three servers', () => {
  it(
    'keeps a lock and its order of tokens when the leader is killed',
    async () => {
      const leader = await ensemble.leader();
      const [ours, theirs] = [locksOn(serversFrom(leader.service.url)), locksOn()];
      const lock = await ours.acquire('killed', { leaseMs: LEASE_MS });
      await leader.kill();
      await ensemble.leader();
      await expectTaken(theirs, 'killed');
      await onceReachable(() => lock.extend(LEASE_MS));
      await lock.release();
      const next = await acquireOnceReachable(theirs, 'killed');
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    },
    TIMEOUT_MS,
  );

  it(
    'is used through another server when the leader is frozen, and the waiter there gets the lock',
    async () => {
      const leader = await ensemble.leader();
      const [ours, theirs] = [
        locksOn(serversFrom(leader.service.url)),
        locksOn(serversFrom(leader.service.url)),
      ];
      const lock = await ours.acquire('frozen', { leaseMs: LEASE_MS });
      const waiting = theirs.acquire('frozen', { leaseMs: LEASE_MS, waitMs: TIMEOUT_MS });
      await until(async () => (await ours.inspect('frozen'))?.queued === 1);
      await leader.freeze();
      // The release may be confirmed only when it is repeated through another server.
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
      const [first, second] = ensemble.members;
      await Promise.all([first?.kill(), second?.kill()]);
      await expect(locks.acquire('other', { leaseMs: LEASE_MS, waitMs: 0 })).rejects.toThrow(
        LockUnavailableError,
      );
      expect(lock.isValid()).toBe(true);
      await Promise.all([first?.startAgain(), second?.startAgain()]);
      await ensemble.leader();
      const other = await acquireOnceReachable(locks, 'other');
      expect(other.fencingToken).toBeGreaterThan(lock.fencingToken);
      await onceReachable(() => lock.extend(LEASE_MS));
    },
    TIMEOUT_MS,
  );

  it(
    'forgets nothing when all servers restart',
    async () => {
      const locks = locksOn();
      const lock = await acquireOnceReachable(locks, 'restarted');
      await Promise.all(ensemble.members.map((member) => member.kill()));
      await ensemble.heal();
      await expectTaken(locksOn(), 'restarted');
      await lock.release();
      const next = await acquireOnceReachable(locks, 'restarted');
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    },
    TIMEOUT_MS,
  );

  it(
    'keeps locks when the disk of one server is gone',
    async () => {
      const locks = locksOn();
      const lock = await acquireOnceReachable(locks, 'disk');
      const [, , lost] = ensemble.members;
      await lost?.kill();
      await rm(join(lost?.service.dataDir ?? '', 'data', 'version-2'), { recursive: true, force: true });
      await expectTaken(locksOn(), 'disk');
      await onceReachable(() => lock.extend(LEASE_MS));
    },
    TIMEOUT_MS,
  );

  it(
    'lets a process that is silently cut off know that its lock is over before another one has it',
    async () => {
      const proxy = await FaultProxy.to(ensemble.members[0]?.service.port ?? 0);
      opened.push(proxy);
      const ours = locksOn([`127.0.0.1:${proxy.port}`], SHORT_SESSION_MS);
      const theirs = locksOn(ensemble.servers, SHORT_SESSION_MS);
      const lock = await ours.acquire('cut off', { leaseMs: SHORT_LEASE_MS });
      const waiting = theirs.acquire('cut off', { leaseMs: SHORT_LEASE_MS, waitMs: TIMEOUT_MS });
      await until(async () => (await theirs.inspect('cut off'))?.queued === 1);
      proxy.setConditions({ up: 'drop', down: 'drop' });
      const next = await waiting;
      expect(lock.isValid()).toBe(false);
      expect(lock.signal.aborted).toBe(true);
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
      proxy.heal();
      // The session is over, and the next one works.
      await next.release();
      const again = await acquireOnceReachable(ours, 'cut off', SHORT_LEASE_MS);
      expect(again.fencingToken).toBeGreaterThan(next.fencingToken);
    },
    TIMEOUT_MS,
  );
});

describe('a server that is silently cut off from its leader', () => {
  const proxies: FaultProxy[] = [];
  let divided: ZookeeperEnsemble;

  beforeAll(async () => {
    divided = await startZookeeperEnsemble({
      reachesPeersThrough: async (port) => {
        const proxy = await FaultProxy.to(port);
        proxies.push(proxy);
        return proxy.port;
      },
    });
  }, TIMEOUT_MS);
  afterAll(async () => {
    proxies.forEach((proxy) => proxy.heal());
    await divided.close();
    await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
  }, TIMEOUT_MS);

  it(
    'renews no lock, although it still answers pings: no two processes have a lock at once',
    async () => {
      const [, , cutOff] = divided.members;
      expect(await divided.leader()).not.toBe(cutOff);
      const ours = locksOn([cutOff?.service.url ?? ''], SHORT_SESSION_MS);
      const theirs = locksOn(divided.servers.slice(0, 2), SHORT_SESSION_MS);
      const lock = await ours.acquire('divided', { leaseMs: SHORT_LEASE_MS });
      const waiting = theirs.acquire('divided', { leaseMs: SHORT_LEASE_MS, waitMs: TIMEOUT_MS });
      await until(async () => (await theirs.inspect('divided').catch(() => null))?.queued === 1);
      for (const proxy of proxies) proxy.setConditions({ up: 'hold', down: 'hold' });
      const next = await waiting;
      expect(lock.isValid()).toBe(false);
      expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    },
    TIMEOUT_MS,
  );
});
