import assert from 'node:assert/strict';
import type { LockBackend } from '../../core/backend.js';
import type { LockPage } from '../../core/lock-record.js';
import { type Law, TIMEOUT_MS, createAcquisitionId, law, nth } from './law.js';

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
    const { backend } = open();
    const keys = Array.from({ length: 25 }, (_, index) => `${key}:${index}`);
    const acquire = [...keys, `other ${key}`].map((one) => ({
      ...createAcquisitionId(one),
      ...{ leaseMs: 30_000, instance: 'a law' },
    }));
    await backend.execute({ acquire }, TIMEOUT_MS);
    const first = await backend.list({ prefix: key, limit: 10 }, TIMEOUT_MS);
    assert(first.locks.length <= 10, 'expected at most 10 locks on the page');
    assert(first.cursor !== undefined, 'expected a second page');
    const listed = [...first.locks.map((lock) => lock.key), ...(await keysOf(backend, key, first.cursor))];
    assert.deepEqual([...new Set(listed)].sort(), keys.sort());
  }),

  law('a prefix is compared character by character', async ({ key, open }) => {
    const { backend } = open();
    const names = ['%', '_', '*', '?', '[a]', '\\', "'", 'é', '😀', '{b}:lock', 'A'];
    const acquire = names.map((name) => ({
      ...createAcquisitionId(`${key}${name}z`),
      ...{ leaseMs: 30_000, instance: 'a law' },
    }));
    await backend.execute({ acquire }, TIMEOUT_MS);
    for (const name of [...names, 'a', 'e', '{b}:lockz', '[']) {
      const expected = names.filter((one) => `${one}z`.startsWith(name)).map((one) => `${key}${one}z`);
      const listed = new Set(await keysOf(backend, `${key}${name}`));
      assert.deepEqual([...listed].sort(), expected.sort(), `of the prefix ${name}`);
    }
  }),

  law(
    'a page whose time is over is refused, or its cursor leads to the other keys',
    async ({ key, open }) => {
      const [hurried, { backend }] = [open().backend, open()];
      const keys = Array.from({ length: 25 }, (_, index) => `${key}:${index}`);
      const acquire = keys.map((one) => ({
        ...createAcquisitionId(one),
        ...{ leaseMs: 30_000, instance: 'a law' },
      }));
      await backend.execute({ acquire }, TIMEOUT_MS);
      const page = await hurried.list({ prefix: key, limit: 100 }, 1).catch(() => undefined);
      const listed = page?.locks.map((lock) => lock.key) ?? [];
      if (!page || page.cursor !== undefined) listed.push(...(await keysOf(backend, key, page?.cursor)));
      assert.deepEqual([...new Set(listed)].sort(), keys.sort());
    },
  ),

  law('a text that is not a cursor is refused', async ({ key, open }) => {
    const { backend } = open();
    for (const cursor of ['nonsense', '{}', Buffer.from('[]').toString('base64url')])
      await assert.rejects(backend.list({ prefix: key, cursor, limit: 1 }, TIMEOUT_MS));
  }),
];

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
