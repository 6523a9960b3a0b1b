import { describe, expect, it } from 'vitest';
import { LockUnavailableError } from '../../../lib/core/errors.js';
import type { Lock } from '../../../lib/core/lock.js';
import type { Locks } from '../../../lib/core/locks.js';
import type { AcquireOptions } from '../../../lib/core/options.js';
import { lockFixture } from './lock-fixture.js';

const ways = [
  ['acquire', (locks: Locks, options?: AcquireOptions) => locks.acquire('key', options)],
  [
    'tryAcquire',
    (locks: Locks, options?: AcquireOptions) => locks.tryAcquire('key', options) as Promise<Lock>,
  ],
] as const;

describe.each(ways)('%s over a connection that is lost before the reply', (_, ask) => {
  it.each([
    ['although the request had landed', {}],
    ['long before the request lands', { landsAfterMs: 20_000 }],
  ])('is granted the lock over the next one, %s', async (_title, late) => {
    const { backend, clock, ours, theirs } = lockFixture();
    backend.next('acquire', { loseConnection: true, ...late });
    const lock = await ask(ours);
    expect(backend.count('acquire')).toBe(2);
    expect(await theirs.tryAcquire('key')).toBeNull();
    await clock.advance(60_000);
    expect(lock.isValid()).toBe(true);
    expect(await lock.release()).toBe(true);
    expect(await theirs.tryAcquire('key')).not.toBeNull();
  });

  it('leaves no lock behind when the request arrives after the release', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { loseConnection: true, landsAfterMs: 3_000 });
    await (await ask(ours)).release();
    await clock.advance(3_000);
    await clock.advance(1_000);
    expect(await isHeld('key')).toBe(false);
  });

  it('does not affect the next holder when the request arrives after the release', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    backend.next('acquire', { loseConnection: true, landsAfterMs: 3_000 });
    await (await ask(ours)).release();
    const next = await theirs.acquire('key');
    await clock.advance(60_000);
    expect(next.isValid()).toBe(true);
  });

  it('fails at once if the next connection is lost as well or cannot be opened', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { loseConnection: true }, 2);
    await expect(ask(ours)).rejects.toThrow(LockUnavailableError);
    expect(backend.count('acquire')).toBe(2);
    backend.next('acquire', { loseConnection: true });
    backend.next('acquire', { refuse: true });
    await expect(ask(ours)).rejects.toThrow('connection refused');
    expect(backend.count('acquire')).toBe(4);
    await clock.advance(0);
    expect(await isHeld('key')).toBe(false);
  });

  it('is not repeated once a signal has ended the wait', async () => {
    const { backend, ours, isHeld } = lockFixture();
    const controller = new AbortController();
    backend.next('acquire', { loseConnection: true });
    const asking = ask(ours, { signal: controller.signal });
    controller.abort(new Error('left'));
    await expect(asking).rejects.toThrow('left');
    await ours.drain({ drainMs: 0, abortGraceMs: 0 });
    expect(backend.count('acquire')).toBe(1);
    expect(await isHeld('key')).toBe(false);
  });
});

it('callers that came meanwhile get only the result of the next connection', async () => {
  const { backend, ours } = lockFixture();
  backend.next('acquire', { loseConnection: true });
  const served: number[] = [];
  await Promise.all([1, 2, 3].map((name) => ours.withLock('key', {}, () => void served.push(name))));
  expect(served).toEqual([1, 2, 3]);
  expect(backend.count('acquire')).toBe(2);
});
