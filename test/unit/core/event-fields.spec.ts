import { expect, it } from 'vitest';
import { lockFixture } from './lock-fixture.js';

const ENDS = ['released', 'lost', 'unavailable'];

it('released says how long the caller waited, and how long it had the lock', async () => {
  const { clock, ours, message } = lockFixture();
  const first = await ours.acquire('order:42');
  const waiting = ours.acquire('order:42');
  await clock.advance(40);
  await first.release();
  const second = await waiting;
  expect(message('released')).toMatchObject({
    template: 'order:{n}',
    purpose: 'lock',
    waitedMs: 0,
    heldMs: 40,
  });
  await clock.advance(300);
  await second.release();
  expect(message('released', 1)).toMatchObject({ key: 'order:42', waitedMs: 40, heldMs: 300 });
});

it('every event names its module, its backend and what it is counted by', async () => {
  const { ours, theirs, message } = lockFixture();
  const held = await theirs.acquire('order:42', { label: 'orders' });
  await expect(ours.acquire('order:42', { waitMs: 0 })).rejects.toThrow('still taken');
  const source = { namespace: 'lock', instance: 'ours', backend: 'memory', module: 'default' };
  expect(message('timeout')).toMatchObject({ ...source, key: 'order:42', template: 'order:{n}' });
  expect(message('contended')).toMatchObject({ ...source, template: 'order:{n}', purpose: 'lock' });
  expect(message('acquired')).toMatchObject({ instance: 'theirs', template: 'orders' });
  await held.release();
  expect(message('released')).toMatchObject({ template: 'orders' });
});

it('callers that take a grant in turn each have their own label', async () => {
  const { ours, message } = lockFixture();
  const [first, second] = [ours.acquire('key', { label: 'one' }), ours.acquire('key', { label: 'other' })];
  await (await first).release();
  await (await second).release();
  expect([0, 1].map((index) => message('released', index)?.template)).toEqual(['one', 'other']);
});

it('runs and terms are told from locks, and counted by the key itself', async () => {
  const { ours, message } = lockFixture();
  await (
    await ours.leaders.wait('shard-7', { leaseMs: 1_000, signal: new AbortController().signal })
  ).release();
  expect(message('acquired')).toMatchObject({ template: 'shard-7', purpose: 'term' });
  const run = await ours.jobs.claimTick('report-1', {});
  if (!('release' in run)) throw new Error('not granted');
  await run.release();
  expect(message('released', 1)).toMatchObject({ template: 'report-1', purpose: 'run' });
});

it('a lock that the store has given away ends with "lost", also if its caller releases it itself', async () => {
  const { ours, eventNames, message } = lockFixture();
  const lock = await ours.acquire('order:42');
  await ours.forceRelease('order:42', lock.fencingToken);
  expect(await lock.release()).toBe(false);
  expect(eventNames().filter((name) => ENDS.includes(name))).toEqual(['lost']);
  expect(message('lost')).toMatchObject({ template: 'order:{n}', fencingToken: lock.fencingToken });
});

it('a lock whose release got no answer ends with "unavailable" and its token', async () => {
  const { ours, backend, clock, eventNames, message } = lockFixture();
  const lock = await ours.acquire('key');
  backend.next('release', { refuse: true });
  await expect(lock.release()).rejects.toThrow('did not confirm');
  await clock.advance(100);
  expect(eventNames().filter((name) => ENDS.includes(name))).toEqual(['unavailable']);
  expect(message('unavailable')).toMatchObject({ operation: 'release', fencingToken: lock.fencingToken });
});
