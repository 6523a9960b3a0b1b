import assert from 'node:assert/strict';
import { type Law, createAcquisitionId, law } from './law.js';

const WAITER_SETTINGS = { retryWithinMs: 60_000 };

/** Waiters, in stores with and without a wait queue. */
export const queueLaws: readonly Law[] = [
  law('a waiter is granted the key once it is free', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const [holder, waiter] = [createAcquisitionId(key), createAcquisitionId(key)];
    const before = await ours.expectGranted(holder);
    await theirs.expectTaken(waiter, WAITER_SETTINGS);
    await theirs.expectTaken(waiter, WAITER_SETTINGS);
    assert.equal(await ours.release(holder), 'released');
    assert((await theirs.acquireOnceFree(waiter, WAITER_SETTINGS)) > before);
    await ours.expectTaken(createAcquisitionId(key));
  }),

  law(
    'a waiter is granted the key once the lease of its holder has expired',
    async ({ key, patientLeaseMs, open }) => {
      const [ours, theirs] = [open(), open()];
      // Opens a connection, which may take longer than the lease.
      await theirs.inspect(key);
      await ours.expectGranted(createAcquisitionId(key), { leaseMs: patientLeaseMs });
      const waiter = createAcquisitionId(key);
      await theirs.expectTaken(waiter, WAITER_SETTINGS);
      await theirs.acquireOnceFree(waiter, WAITER_SETTINGS);
    },
  ),

  law('a waiter that left does not keep others waiting', async ({ key, open }) => {
    const client = open();
    const [holder, waiter] = [createAcquisitionId(key), createAcquisitionId(key)];
    await client.expectGranted(holder);
    await client.expectTaken(waiter, WAITER_SETTINGS);
    assert.equal(await client.release(waiter), 'gone');
    await client.release(holder);
    await client.expectGranted(createAcquisitionId(key));
  }),

  law('a waiter that never asks again holds nothing', async ({ key, open }) => {
    const client = open();
    const [holder, dead] = [createAcquisitionId(key), createAcquisitionId(key)];
    await client.expectGranted(holder);
    await client.expectTaken(dead, WAITER_SETTINGS);
    await client.release(holder);
    assert.equal(await client.inspect(key), null);
    assert.equal(await client.renew(dead), 'lost');
    await client.acquireOnceFree(createAcquisitionId(key));
  }),

  law('a waiter does not count as the holder', async ({ key, open }) => {
    const client = open();
    const [holder, waiter] = [createAcquisitionId(key), createAcquisitionId(key)];
    await client.expectGranted(holder);
    await client.expectTaken(waiter, WAITER_SETTINGS);
    assert.equal(await client.renew(waiter), 'lost');
    assert.equal(await client.release(waiter), 'gone');
    assert.equal((await client.inspect(key))?.holder, holder.holder);
    assert.equal(await client.renew(holder), 'renewed');
  }),
];
