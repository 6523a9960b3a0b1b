import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Law, LEASE_MS, LONG_LEASE_MS, law, somebody } from './law.js';

/** How long a grant lasts, and that those who come too late touch nobody. */
export const leaseLaws: readonly Law[] = [
  law('a lease that is not renewed ends by itself', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await ours.take(somebody(key), { leaseMs: LEASE_MS });
    await theirs.takeWhenOver(somebody(key));
  }),

  law('a renewed lease is still held when the first one would be over', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const claim = somebody(key);
    await ours.take(claim, { leaseMs: LEASE_MS });
    assert.equal(await ours.renew(claim, LONG_LEASE_MS), 'renewed');
    await sleep(LEASE_MS * 1.25); // Only time can show that the first lease no longer counts.
    await theirs.findTaken(somebody(key));
  }),

  law('a renewal never shortens a lease', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    await asking.take(claim, { leaseMs: LONG_LEASE_MS });
    assert.equal(await asking.renew(claim, LEASE_MS), 'renewed');
    assert((await asking.findTaken(somebody(key))) > LEASE_MS, 'expected the long lease to stand');
  }),

  law('a renewal that comes too late brings nothing back', async ({ key, open }) => {
    const asking = open();
    const [late, next] = [somebody(key), somebody(key)];
    await asking.take(late, { leaseMs: LEASE_MS });
    await asking.takeWhenOver(next);
    assert.equal(await asking.renew(late), 'lost');
    assert.equal(await asking.release(next), 'released');
    assert.equal(await asking.renew(late), 'lost');
    assert.equal(await asking.inspect(key), null);
  }),

  law('a renewal of a lapsed lease is lost even if nobody came after', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    await asking.take(claim, { leaseMs: LEASE_MS });
    while (await asking.inspect(key)) await sleep(10);
    assert.equal(await asking.renew(claim), 'lost');
    assert.equal(await asking.inspect(key), null);
  }),

  law('a renewal of a released lock is lost', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    await asking.take(claim);
    await asking.release(claim);
    assert.equal(await asking.renew(claim), 'lost');
    assert.equal(await asking.inspect(key), null);
  }),

  law('a late release leaves the next holder alone', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const [late, next] = [somebody(key), somebody(key)];
    await ours.take(late, { leaseMs: LEASE_MS });
    await theirs.takeWhenOver(next);
    assert.equal(await ours.release(late), 'gone');
    assert.equal((await ours.inspect(key))?.holder, next.holder);
  }),

  law('a late renewal leaves the next holder alone', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const [late, next] = [somebody(key), somebody(key)];
    await ours.take(late, { leaseMs: LEASE_MS });
    await theirs.takeWhenOver(next, { leaseMs: LEASE_MS });
    assert.equal(await ours.renew(late, LONG_LEASE_MS), 'lost');
    assert((await ours.findTaken(somebody(key))) <= LEASE_MS, "expected the next holder's own lease");
  }),
];
