import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import type { DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { Locks } from '../../lib/core/locks.js';
import { slowProxy } from '../faults/injection/slow-proxy.js';
import { bareLocks } from '../support/bare-locks.js';
import { onceReachable } from '../support/once-reachable.js';
import { dataSourceOptions, sqlServers } from '../support/stores.js';

const LIMIT_MS = 60_000;
const MAX_PERMITS = 64;

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const holdAll = (locks: Locks) =>
  Promise.all(Array.from({ length: MAX_PERMITS }, () => locks.acquire('pdf', { permits: MAX_PERMITS })));

/** A connection sends its statements one after the other, so each of them costs a round trip. */
describe.each(sqlServers)('a distant %s', (_, storeOf) => {
  /** Locks of two processes: one beside the database, and one from which a round trip takes so long. */
  async function locksAt(roundTripMs: number) {
    const options = dataSourceOptions(storeOf()) as { readonly url: string };
    const url = new URL(options.url);
    const proxy = await slowProxy(Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    const namespace = randomUUID();
    const create = (address: string) =>
      bareLocks({
        backend: typeormBackend({ dataSource: { ...options, url: address } as DataSourceOptions }),
        namespace,
      });
    const [near, distant] = [create(options.url), create(url.href)];
    ends.push(
      () => proxy.close(),
      () => near.close(),
      () => distant.close(),
    );
    // Connecting takes many round trips.
    await distant.inspect('warm-up');
    proxy.delayMs = roundTripMs / 2;
    return { near, distant };
  }

  it(
    'says that a key is free, and that there is nothing to release',
    async () => {
      const { distant } = await locksAt(200);
      expect(await distant.inspect('free')).toBeNull();
      expect(await distant.forceRelease('free', 1n)).toBe(false);
    },
    LIMIT_MS,
  );

  it(
    'finds all holders of a key with many permits',
    async () => {
      const { near, distant } = await locksAt(200);
      await holdAll(near);
      expect((await distant.inspect('pdf'))?.holders).toHaveLength(MAX_PERMITS);
    },
    LIMIT_MS,
  );

  it(
    'says that all permits are taken, instead of that it cannot be reached',
    async () => {
      const { near, distant } = await locksAt(60);
      await holdAll(near);
      const tryIt = () => distant.tryAcquire('pdf', { permits: MAX_PERMITS });
      expect(await onceReachable(tryIt)).toBeNull();
    },
    LIMIT_MS,
  );
});
