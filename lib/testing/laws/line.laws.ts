import assert from 'node:assert/strict';
import { type Law, LEASE_MS, law, somebody } from './law.js';

const AGAIN = { againWithinMs: 60_000 };

/** Those who wait, in stores that keep a line for them and in stores that do not. */
export const lineLaws: readonly Law[] = [
  law('who waits is granted the key once it is free', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const [holder, waiter] = [somebody(key), somebody(key)];
    const before = await ours.take(holder);
    await theirs.findTaken(waiter, AGAIN);
    await theirs.findTaken(waiter, AGAIN);
    assert.equal(await ours.release(holder), 'released');
    assert((await theirs.takeWhenOver(waiter, AGAIN)) > before);
    await ours.findTaken(somebody(key));
  }),

  law('who waits is granted the key once the lease of its holder ran out', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await ours.take(somebody(key), { leaseMs: LEASE_MS });
    const waiter = somebody(key);
    await theirs.findTaken(waiter, AGAIN);
    await theirs.takeWhenOver(waiter, AGAIN);
  }),

  law('who waited and left keeps nobody waiting', async ({ key, open }) => {
    const asking = open();
    const [holder, waiter] = [somebody(key), somebody(key)];
    await asking.take(holder);
    await asking.findTaken(waiter, AGAIN);
    assert.equal(await asking.release(waiter), 'gone');
    await asking.release(holder);
    await asking.take(somebody(key));
  }),

  law('who waited and never came back holds nothing', async ({ key, open }) => {
    const asking = open();
    const [holder, dead] = [somebody(key), somebody(key)];
    await asking.take(holder);
    await asking.findTaken(dead, AGAIN);
    await asking.release(holder);
    assert.equal(await asking.inspect(key), null);
    assert.equal(await asking.renew(dead), 'lost');
    await asking.takeWhenOver(somebody(key));
  }),

  law('a waiter is not taken for the holder', async ({ key, open }) => {
    const asking = open();
    const [holder, waiter] = [somebody(key), somebody(key)];
    await asking.take(holder);
    await asking.findTaken(waiter, AGAIN);
    assert.equal(await asking.renew(waiter), 'lost');
    assert.equal(await asking.release(waiter), 'gone');
    assert.equal((await asking.inspect(key))?.holder, holder.holder);
    assert.equal(await asking.renew(holder), 'renewed');
  }),
];
