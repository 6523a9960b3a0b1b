import { describe, expect, it } from 'vitest';
import { LockUnavailableError } from '../../../../lib/core/errors.js';
import { lockFixture } from '../lock-fixture.js';

describe('an acquisition with an unknown outcome', () => {
  it('is withdrawn when its result was lost', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    backend.next('acquire', { loseAnswer: true });
    await expect(ours.acquire('key')).rejects.toThrow(LockUnavailableError);
    await clock.advance(0);
    expect(await theirs.tryAcquire('key')).not.toBeNull();
  });

  it('is withdrawn when its result never arrives', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    backend.next('acquire', { silence: true });
    const asking = ours.tryAcquire('key');
    const refused = expect(asking).rejects.toThrow(/no answer from the store within/);
    await clock.advance(10_000);
    await refused;
    expect(await theirs.tryAcquire('key')).not.toBeNull();
  });

  it('is withdrawn when it reaches the store only after the withdrawal', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayRequestMs: 20_000 });
    const refused = expect(ours.tryAcquire('key')).rejects.toThrow(LockUnavailableError);
    await clock.advance(19_999);
    await refused;
    expect(await isHeld('key')).toBe(false);
    await clock.advance(5_000);
    expect(await isHeld('key')).toBe(false);
  });

  it('is withdrawn when it reaches the store only after the withdrawal, and its result is lost', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayRequestMs: 12_000, loseAnswer: true });
    const refused = expect(ours.tryAcquire('key')).rejects.toThrow(LockUnavailableError);
    await clock.advance(12_000);
    await refused;
    expect(await isHeld('key')).toBe(true);
    await clock.advance(1_000);
    expect(await isHeld('key')).toBe(false);
  });

  it('is never granted to a caller with less than half its lease left', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 5_001 });
    const refused = expect(ours.tryAcquire('key', { leaseMs: 10_000 })).rejects.toThrow(LockUnavailableError);
    await clock.advance(5_001);
    await refused;
    expect(await theirs.tryAcquire('key')).not.toBeNull();
  });

  it('is not granted to a caller when a blocked event loop processes the result before its timer', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 1 });
    const refused = expect(ours.tryAcquire('key', { leaseMs: 10_000 })).rejects.toThrow(LockUnavailableError);
    await clock.advance(0);
    clock.freeze(9_000);
    await clock.advance(0);
    await refused;
    await clock.advance(0);
    expect(await isHeld('key')).toBe(false);
  });

  it('does not affect the next acquisition of the same caller', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { loseAnswer: true });
    await expect(ours.acquire('key')).rejects.toThrow(LockUnavailableError);
    await clock.advance(0);
    const lock = await ours.acquire('key');
    await clock.advance(120_000);
    expect(lock.isValid()).toBe(true);
  });

  it('is withdrawn also after a short outage of the store', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { loseAnswer: true });
    backend.next('release', { refuse: true }, 3);
    await expect(ours.acquire('key', { leaseMs: 30_000 })).rejects.toThrow(LockUnavailableError);
    await clock.advance(1_000);
    expect(await isHeld('key')).toBe(false);
  });

  it('is withdrawn for a minute if it never reaches the store, however long its lease', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayRequestMs: Infinity });
    const refused = expect(ours.tryAcquire('key', { leaseMs: 86_400_000 })).rejects.toThrow(
      LockUnavailableError,
    );
    await clock.advance(60_000);
    await refused;
    const whileItMayArrive = backend.count('release');
    expect(whileItMayArrive).toBeGreaterThan(50);
    await clock.advance(600_000);
    expect(backend.count('release')).toBeLessThan(whileItMayArrive + 10);
  });

  it('leaves nothing behind once its lease would have ended', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { loseAnswer: true });
    backend.next('release', { refuse: true }, Infinity);
    await expect(ours.acquire('key')).rejects.toThrow(LockUnavailableError);
    await clock.advance(60_000);
    expect(clock.pending).toBe(0);
  });
});

describe('an acquisition that was never sent', () => {
  it('is not withdrawn', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { refuse: true });
    await expect(ours.acquire('key')).rejects.toThrow(LockUnavailableError);
    await clock.advance(60_000);
    expect(backend.count('release')).toBe(0);
  });
});

describe('a release that the store does not confirm', () => {
  it('is retried as long as the lease may last, also an extended one', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 1_000 });
    await lock.extend(600_000);
    backend.next('release', { loseAnswer: true });
    backend.next('release', { refuse: true }, 20);
    backend.forgetAll();
    const refused = lock.release();
    await expect(refused).rejects.toThrow(/within 6\d\d\d\d\d ms/);
    await clock.advance(120_000);
    expect(backend.count('release')).toBeGreaterThan(21);
    expect(await isHeld('key')).toBe(false);
  });

  it('rejects release() and is retried', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    const lock = await ours.acquire('key');
    backend.next('release', { refuse: true });
    await expect(lock.release()).rejects.toThrow(LockUnavailableError);
    expect(await isHeld('key')).toBe(true);
    await clock.advance(100);
    expect(await isHeld('key')).toBe(false);
  });

  it('does not hide how the work ended', async () => {
    const { backend, ours, eventNames } = lockFixture();
    backend.next('release', { refuse: true }, 2);
    expect(await ours.withLock('key', {}, () => 'value')).toBe('value');
    const error = new Error('of the work');
    await expect(ours.withLock('other', {}, () => Promise.reject(error))).rejects.toBe(error);
    expect(eventNames().filter((event) => event === 'unavailable')).toHaveLength(2);
  });

  it('does not affect the next holder, however late it arrives', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 10_000 });
    backend.next('release', { delayRequestMs: 15_000 });
    const released = expect(lock.release()).rejects.toThrow(LockUnavailableError);
    await clock.advance(10_001);
    await released;
    const next = await theirs.acquire('key');
    await clock.advance(10_000);
    expect(next.isValid()).toBe(true);
  });
});

describe('a lost lock that the store keeps for longer, because the result of an extension was lost,', () => {
  const lostInDoubt = async () => {
    const everything = lockFixture();
    const { backend, clock, ours } = everything;
    const lock = await ours.acquire('key', { leaseMs: 10_000, renew: false });
    backend.next('renew', { loseAnswer: true });
    await expect(lock.extend(60_000)).rejects.toThrow(LockUnavailableError);
    await clock.advance(20_000);
    expect(lock.isValid()).toBe(false);
    return { ...everything, lock };
  };

  it('stays taken until its holder releases it, because its work may still run', async () => {
    const { backend, isHeld } = await lostInDoubt();
    expect(await isHeld('key')).toBe(true);
    expect(backend.count('release')).toBe(0);
  });

  it('is free once its holder has released it', async () => {
    const { clock, eventNames, isHeld, lock } = await lostInDoubt();
    expect(await lock.release()).toBe(false);
    await clock.advance(0);
    expect(await isHeld('key')).toBe(false);
    expect(eventNames()).not.toContain('released');
  });

  it('is released once, however often release() is called', async () => {
    const { backend, clock, lock } = await lostInDoubt();
    await lock.release();
    await lock[Symbol.asyncDispose]();
    await clock.advance(60_000);
    expect(backend.count('release')).toBe(1);
  });

  it('is free once it was disposed of', async () => {
    const { clock, isHeld, lock } = await lostInDoubt();
    await lock[Symbol.asyncDispose]();
    await clock.advance(0);
    expect(await isHeld('key')).toBe(false);
  });

  it.each([
    ['in peace', () => undefined],
    ['with an error', () => Promise.reject(new Error('of the work'))],
  ])('is free once the work under it has ended %s', async (_, end) => {
    const { backend, clock, ours, isHeld } = lockFixture();
    const working = ours.withLock('key', { leaseMs: 10_000, renew: false }, async (lock) => {
      backend.next('renew', { loseAnswer: true });
      await expect(lock.extend(60_000)).rejects.toThrow(LockUnavailableError);
      await clock.advance(20_000);
      expect(await isHeld('key')).toBe(true);
      await end();
    });
    await expect(working).rejects.toThrow();
    expect(await isHeld('key')).toBe(false);
  });

  it('is free also after a short outage of the store', async () => {
    const { backend, clock, isHeld, lock } = await lostInDoubt();
    backend.next('release', { refuse: true }, 3);
    await lock.release();
    await clock.advance(1_000);
    expect(await isHeld('key')).toBe(false);
  });

  it('does not affect the next holder', async () => {
    const { backend, clock, theirs, lock } = await lostInDoubt();
    backend.next('release', { delayRequestMs: 1_000 });
    await lock.release();
    backend.forgetAll();
    const next = await theirs.acquire('key');
    await clock.advance(10_000);
    expect(next.isValid()).toBe(true);
  });

  it('is not released any more once its lease has ended for certain', async () => {
    const { backend, clock, lock } = await lostInDoubt();
    await clock.advance(60_000);
    expect(await lock.release()).toBe(false);
    await clock.advance(60_000);
    expect(backend.count('release')).toBe(0);
  });
});
