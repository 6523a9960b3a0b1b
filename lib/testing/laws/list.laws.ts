import assert from 'node:assert/strict';
import type { AcquisitionId, LockBackend } from '../../core/backend.js';
import type { LockPage } from '../../core/lock-record.js';
import {
  type BackendClient,
  type Law,
  LONG_LEASE_MS,
  TIMEOUT_MS,
  createAcquisitionId,
  law,
  nth,
} from './law.js';

/** The pages of held keys, which are for people. */
export const listLaws: readonly Law[] = [
  law('a page shows each held key as inspect shows it, and no free one', async ({ key, open }) => {
    const [holder, viewer] = [open(), open()];
    const [held, released] = [createAcquisitionId(`${key}:held`), createAcquisitionId(`${key}:released`)];
    const fencingToken = await holder.expectGranted(held, { instance: 'a ‚holderʻ 😀' });
    await holder.expectGranted(released);
    assert.equal(await holder.release(released), 'released');
    const { locks, cursor } = await viewer.backend.list({ prefix: key, limit: 10 }, TIMEOUT_MS);
    assert.equal(locks.length, 1);
    const { remainingMs, ...lock } = nth(locks, 0);
    const record = await viewer.inspect(held.key);
    assert(record, 'expected the key to be held');
    const { remainingMs: laterMs, ...inspected } = record;
    assert.deepEqual({ ...lock }, { key: held.key, ...inspected });
    assert.equal(lock.fencingToken, fencingToken);
    assert(remainingMs >= laterMs, 'expected the rest of the lease');
    assert(cursor === undefined || (await keysOf(viewer.backend, key, cursor)).length === 0);
  }),

  law('the pages of a prefix have every held key, and no more keys than the limit', async ({ key, open }) => {
    const client = open();
    const { backend } = client;
    const keys = Array.from({ length: 25 }, (_, index) => `${key}:${index}`);
    await hold(client, [`other ${key}`]);
    await expectListed(client, await hold(client, keys), async () => {
      const first = await backend.list({ prefix: key, limit: 10 }, TIMEOUT_MS);
      assert(first.locks.length <= 10, 'expected at most 10 locks on the page');
      const listed = first.locks.map((lock) => lock.key);
      return first.cursor === undefined ? listed : [...listed, ...(await keysOf(backend, key, first.cursor))];
    });
  }),

  law('a prefix is compared character by character', async ({ key, open }) => {
    const client = open();
    const names = ['%', '_', '*', '?', '[a]', '\\', "'", 'é', '😀', '{b}:lock', 'A'];
    const held = await hold(
      client,
      names.map((name) => `${key}${name}z`),
    );
    for (const name of [...names, 'a', 'e', '{b}:lockz', '[']) {
      const prefix = `${key}${name}`;
      const expected = held.filter((lock) => lock.key.startsWith(prefix));
      await expectListed(client, expected, () => keysOf(client.backend, prefix));
    }
  }),

  law(
    'a page whose time is over is refused, or its cursor leads to the other keys',
    async ({ key, open }) => {
      const [hurried, client] = [open().backend, open()];
      const keys = Array.from({ length: 25 }, (_, index) => `${key}:${index}`);
      await expectListed(client, await hold(client, keys), async () => {
        const page = await hurried.list({ prefix: key, limit: 100 }, 1).catch(() => undefined);
        const listed = page?.locks.map((lock) => lock.key) ?? [];
        if (page && page.cursor === undefined) return listed;
        return [...listed, ...(await keysOf(client.backend, key, page?.cursor))];
      });
    },
  ),

  law('a text that is not a cursor is refused', async ({ key, open }) => {
    const { backend } = open();
    for (const cursor of ['nonsense', '{}', Buffer.from('[]').toString('base64url')])
      await assert.rejects(backend.list({ prefix: key, cursor, limit: 1 }, TIMEOUT_MS));
  }),
];

/** Acquires these keys, which must be free. */
function hold(client: BackendClient, keys: readonly string[]): Promise<AcquisitionId[]> {
  return Promise.all(
    keys.map(async (key) => {
      const acquisition = createAcquisitionId(key);
      await client.expectGranted(acquisition);
      return acquisition;
    }),
  );
}

/** Lists until all locks that are still held are listed: if the machine stands still, leases may end meanwhile. */
async function expectListed(
  client: BackendClient,
  held: readonly AcquisitionId[],
  list: () => Promise<string[]>,
): Promise<void> {
  for (;;) {
    const listed = new Set(await list());
    const missing = held.filter(({ key }) => !listed.has(key));
    const isLost = await Promise.all(
      missing.map(async (lock) => (await client.renew(lock, LONG_LEASE_MS)) === 'lost'),
    );
    if (!isLost.includes(true)) {
      assert.deepEqual([...listed].sort(), held.map(({ key }) => key).sort());
      return;
    }
    await Promise.all(missing.map((lock) => client.expectGranted(lock)));
  }
}

/** The keys of all pages, or of those from the cursor on. */
async function keysOf(backend: LockBackend, prefix: string, cursor?: string): Promise<string[]> {
  const keys: string[] = [];
  for (let next = cursor, isLast = false; !isLast;) {
    const page: LockPage = await backend.list({ prefix, cursor: next, limit: 10 }, TIMEOUT_MS);
    keys.push(...page.locks.map((lock) => lock.key));
    next = page.cursor;
    isLast = next === undefined;
  }
  return keys;
}
