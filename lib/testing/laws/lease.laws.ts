import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Law, LONG_LEASE_MS, createAcquisitionId, law } from './law.js';

/** How long a grant lasts. Late renewals and releases do not affect the next holder. */
export const leaseLaws: readonly Law[] = [
  law('a lease that is not renewed ends by itself', async ({ key, leaseMs, open }) => {
    const [ours, theirs] = [open(), open()];
    await ours.expectGranted(createAcquisitionId(key), { leaseMs });
    await theirs.acquireOnceFree(createAcquisitionId(key));
  }),

  law(
    'a renewed lease is still held when the first one would have expired',
    async ({ key, patientLeaseMs, open }) => {
      const [ours, theirs] = [open(), open()];
      const acquisition = createAcquisitionId(key);
      await ours.expectGranted(acquisition, { leaseMs: patientLeaseMs });
      assert.equal(await ours.renew(acquisition, LONG_LEASE_MS), 'renewed');
      await sleep(patientLeaseMs * 1.1); // Only time can show that the first lease no longer counts.
      await theirs.expectTaken(createAcquisitionId(key));
    },
  ),

  law('a renewal never shortens a lease', async ({ key, leaseMs, open }) => {
    const client = open();
    const acquisition = createAcquisitionId(key);
    await client.expectGranted(acquisition, { leaseMs: LONG_LEASE_MS });
    assert.equal(await client.renew(acquisition, leaseMs), 'renewed');
    await client.expectTakenForOver(key, leaseMs);
  }),

  law('a renewal after the backend was closed shortens no lease', async ({ key, leaseMs, open }) => {
    const [ours, theirs] = [open(), open()];
    const acquisition = createAcquisitionId(key);
    await ours.expectGranted(acquisition, { leaseMs: LONG_LEASE_MS });
    await ours.backend.close();
    // A backend may have forgotten the lock when it was closed, but must not free it.
    if ((await ours.renew(acquisition, leaseMs)) === 'lost') return;
    await sleep(leaseMs * 1.5); // Only time can show that the lease does not end with the renewal.
    await theirs.expectTaken(createAcquisitionId(key));
  }),

  law('a late renewal does not restore the lease', async ({ key, leaseMs, open }) => {
    const client = open();
    const [late, next] = [createAcquisitionId(key), createAcquisitionId(key)];
    await client.expectGranted(late, { leaseMs });
    await client.acquireOnceFree(next);
    assert.equal(await client.renew(late), 'lost');
    assert.equal(await client.release(next), 'released');
    assert.equal(await client.renew(late), 'lost');
    assert.equal(await client.inspect(key), null);
  }),

  law(
    'a renewal of an expired lease is lost even if the key was not granted since',
    async ({ key, leaseMs, open }) => {
      const client = open();
      const acquisition = createAcquisitionId(key);
      await client.expectGranted(acquisition, { leaseMs });
      await client.waitUntilFree(key);
      assert.equal(await client.renew(acquisition), 'lost');
      assert.equal(await client.inspect(key), null);
    },
  ),

  law('a renewal of a released lock is lost', async ({ key, open }) => {
    const client = open();
    const acquisition = createAcquisitionId(key);
    await client.expectGranted(acquisition);
    await client.release(acquisition);
    assert.equal(await client.renew(acquisition), 'lost');
    assert.equal(await client.inspect(key), null);
  }),

  law('a late release does not affect the next holder', async ({ key, leaseMs, open }) => {
    const [ours, theirs] = [open(), open()];
    const [late, next] = [createAcquisitionId(key), createAcquisitionId(key)];
    await ours.expectGranted(late, { leaseMs });
    await theirs.acquireOnceFree(next);
    assert.equal(await ours.release(late), 'gone');
    assert.equal((await ours.inspect(key))?.holder, next.holder);
  }),

  law('a late renewal does not affect the next holder', async ({ key, leaseMs, open }) => {
    const [ours, theirs] = [open(), open()];
    const [late, next] = [createAcquisitionId(key), createAcquisitionId(key)];
    await ours.expectGranted(late, { leaseMs });
    await theirs.acquireOnceFree(next, { leaseMs: LONG_LEASE_MS });
    assert.equal(await ours.renew(late, 2 * LONG_LEASE_MS), 'lost');
    const remainingMs = await ours.expectTaken(createAcquisitionId(key));
    assert(remainingMs <= LONG_LEASE_MS, "expected the next holder's own lease");
  }),
];
