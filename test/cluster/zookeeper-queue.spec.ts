import { expect, it } from 'vitest';
import { ZookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import type { ReleaseNotice } from '../../lib/core/store-notices.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { TICK_TIME_MS, fourLetters, startZookeeper } from '../services/zookeeper.js';
import { until } from '../support/until.js';

const WAITERS = 200;
const TURNS = 5;
const TIMEOUT_MS = 10_000;
// So long that no session sends a heartbeat while requests are counted.
const sessionTimeoutMs = 20_000_000;
const settings = { leaseMs: 9_000_000, retryWithinMs: 9_000_000 };

/** How many requests ZooKeeper has received, and how many watches it has. */
async function readCounts(url: string): Promise<{ received: number; watches: number }> {
  const numbers = await fourLetters(url, 'mntr');
  const valueOf = (name: string) => Number(new RegExp(`^${name}\\s+(\\d+)$`, 'm').exec(numbers)?.[1]);
  return { received: valueOf('zk_packets_received'), watches: valueOf('zk_watch_count') };
}

it('a release wakes one of 200 waiting processes, and only that one sends requests', async () => {
  const server = await startZookeeper();
  const backends: ZookeeperBackend[] = [];
  const woken: number[] = [];
  const open = () => {
    const backend = new ZookeeperBackend({ servers: server.url, sessionTimeoutMs, tickTimeMs: TICK_TIME_MS });
    backends.push(backend);
    return backend;
  };
  try {
    const key = 'crowd';
    const holder = createAcquisitionId(key);
    const first = open();
    const acquire = async (backend: ZookeeperBackend, acquisition: typeof holder) => {
      const request = createAcquireRequest(acquisition, settings);
      return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0]?.kind;
    };
    expect(await acquire(first, holder)).toBe('granted');
    const waiters: { readonly backend: ZookeeperBackend; readonly acquisition: typeof holder }[] = [];
    for (let index = 0; index < WAITERS; index += 1) {
      const [backend, acquisition] = [open(), createAcquisitionId(key)];
      backend.onReleased(({ key: freed }) => {
        if (freed === key) woken.push(index);
      });
      // One after the other, so the order of the queue is known.
      expect(await acquire(backend, acquisition)).toBe('taken');
      waiters.push({ backend, acquisition });
    }
    expect((await first.inspect(key, TIMEOUT_MS))?.queued).toBe(WAITERS);
    const before = await readCounts(server.url);
    expect(before.watches).toBe(WAITERS);

    await first.execute({ release: [holder] }, TIMEOUT_MS);
    for (const [turn, { backend, acquisition }] of waiters.slice(0, TURNS).entries()) {
      await until(() => woken.length > turn);
      expect(await acquire(backend, acquisition)).toBe('granted');
      await backend.execute({ release: [acquisition] }, TIMEOUT_MS);
    }
    await until(() => woken.length > TURNS);
    expect(woken).toEqual([0, 1, 2, 3, 4, 5]);

    // Each turn reads the queue, claims and releases. The first release comes on top, and the question for the numbers.
    const after = await readCounts(server.url);
    expect(after.received - before.received).toBeLessThanOrEqual(3 * TURNS + 2);
    expect(after.watches).toBe(WAITERS - TURNS - 1);
  } finally {
    await Promise.all(backends.map((backend) => backend.close()));
    await server.stop();
  }
}, 120_000);

it('a waiter whose predecessor has ended before it is watched leaves no watch behind', async () => {
  const server = await startZookeeper();
  const proxy = await FaultProxy.to(server.port);
  const [theirs, ours] = [server.url, `127.0.0.1:${proxy.port}`].map(
    (servers) => new ZookeeperBackend({ servers, sessionTimeoutMs, tickTimeMs: TICK_TIME_MS }),
  ) as [ZookeeperBackend, ZookeeperBackend];
  const [holder, waiter] = [createAcquisitionId('late'), createAcquisitionId('late')];
  const acquire = async (backend: ZookeeperBackend, acquisition: typeof holder) => {
    const request = createAcquireRequest(acquisition, settings);
    return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0]?.kind;
  };
  const notices: ReleaseNotice[] = [];
  ours.onReleased((notice) => notices.push(notice));
  try {
    expect(await acquire(theirs, holder)).toBe('granted');
    await ours.check(TIMEOUT_MS);
    // The entry becomes a place in the queue, in the turn in which the watch is asked for.
    let isHeld = false;
    const holdsFrom = (request: Buffer) => {
      const makesPlace = request.includes('"instance"') && !request.includes('"isHeld"');
      isHeld ||= makesPlace;
      return makesPlace;
    };
    proxy.setConditions({ holdsFrom });
    const acquired = acquire(ours, waiter);
    await until(() => isHeld);
    await theirs.execute({ release: [holder] }, TIMEOUT_MS);
    proxy.heal();
    expect(await acquired).toBe('granted');
    await ours.execute({ release: [waiter] }, TIMEOUT_MS);
    // A lost connection is news for those that have a watch.
    proxy.resetAll();
    await until(() => !proxy.hasConnections);
    const isBack = () =>
      ours.check(TIMEOUT_MS).then(
        () => true,
        () => false,
      );
    await until(isBack);
    expect(notices).toEqual([]);
  } finally {
    await Promise.all([theirs, ours].map((backend) => backend.close()));
    await proxy.close();
    await server.stop();
  }
}, 120_000);
