import assert from 'node:assert/strict';
import { type Law, LEASE_MS, createClaim, law } from './law.js';

const WAITER_SETTINGS = { retryWithinMs: 60_000 };

/** Those who wait, in stores that keep a line for them and in stores that do not. */
export const queueLaws: readonly Law[] = [
  law('who waits is granted the key once it is free', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const [holder, waiter] = [createClaim(key), createClaim(key)];
    const before = await ours.expectGranted(holder);
    await theirs.expectTaken(waiter, WAITER_SETTINGS);
    await theirs.expectTaken(waiter, WAITER_SETTINGS);
    assert.equal(await ours.release(holder), 'released');
    assert((await theirs.acquireOnceFree(waiter, WAITER_SETTINGS)) > before);
    await ours.expectTaken(createClaim(key));
  }),

  law('who waits is granted the key once the lease of its holder ran out', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await ours.expectGranted(createClaim(key), { leaseMs: LEASE_MS });
    const waiter = createClaim(key);
    await theirs.expectTaken(waiter, WAITER_SETTINGS);
    await theirs.acquireOnceFree(waiter, WAITER_SETTINGS);
  }),

  law('who waited and left keeps nobody waiting', async ({ key, open }) => {
    const client = open();
    const [holder, waiter] = [createClaim(key), createClaim(key)];
    await client.expectGranted(holder);
    await client.expectTaken(waiter, WAITER_SETTINGS);
    assert.equal(await client.release(waiter), 'gone');
    await client.release(holder);
    await client.expectGranted(createClaim(key));
  }),

  law('who waited and never came back holds nothing', async ({ key, open }) => {
    const client = open();
    const [holder, dead] = [createClaim(key), createClaim(key)];
    await client.expectGranted(holder);
    await client.expectTaken(dead, WAITER_SETTINGS);
    await client.release(holder);
    assert.equal(await client.inspect(key), null);
    assert.equal(await client.renew(dead), 'lost');
    await client.acquireOnceFree(createClaim(key));
  }),

  law('a waiter is not taken for the holder', async ({ key, open }) => {
    const client = open();
    const [holder, waiter] = [createClaim(key), createClaim(key)];
    await client.expectGranted(holder);
    await client.expectTaken(waiter, WAITER_SETTINGS);
    assert.equal(await client.renew(waiter), 'lost');
    assert.equal(await client.release(waiter), 'gone');
    assert.equal((await client.inspect(key))?.holder, holder.holder);
    assert.equal(await client.renew(holder), 'renewed');
  }),
];
