import { describe, expect, it, vi } from 'vitest';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { LockLostError, LockUnavailableError } from '../../../lib/core/errors.js';
import type { Lock } from '../../../lib/core/lock.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { ScriptedBackend } from '../scripted-backend.js';
import { locksOn, lockFixture } from './lock-fixture.js';

const BY_HAND = { leaseMs: 60_000, renew: false };

/** A process whose machine can sleep: its monotonic clock then stands still, and the store's does not. */
function sleeper() {
  const storeClock = new SettableClock();
  const store = new ScriptedBackend({ clock: storeClock });
  const clock = new SettableClock();
  const locks = locksOn({
    name: 'memory',
    clock,
    execute: (requests) => store.execute(requests),
    inspect: (key) => store.inspect(key),
    list: (request) => store.list(request),
    forceRelease: (key, token) => store.forceRelease(key, token),
    readTicks: (key) => store.readTicks(key),
    registerTicks: (key) => store.registerTicks(key),
    setPaused: (key, isPaused) => store.setPaused(key, isPaused),
    appendHistory: (key, text) => store.appendHistory(key, text),
    readHistory: (key) => store.readHistory(key),
    close: () => store.close(),
  });
  const sleep = async (ms: number) => {
    await storeClock.advance(ms);
    await step(clock, ms);
  };
  return { store, clock, locks, sleep };
}

/** Sets the wall clock, a moment after what came before. */
async function step(clock: SettableClock, byMs: number): Promise<void> {
  clock.setWall(clock.wallMs() + byMs);
  await clock.advance(1);
}

/** The answers of the store arrive, and no time passes. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await nextTurn();
}

const isOurs = async (lock: Lock) => {
  lock.isValid();
  await settle();
  return lock.isValid();
};

describe('after a step of the wall clock', () => {
  it('a lock can be extended in the same moment', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key');
    clock.setWall(clock.wallMs() + 2_000);
    await lock.extend(60_000);
    expect(lock.isValid()).toBe(true);
  });

  it.each([-3_600_000, -2_000, 2_000, 3_600_000])(
    'by %d ms, a read of a lock has all held locks confirmed at once',
    async (byMs) => {
      const { clock, backend, ours } = lockFixture();
      const renewed = await ours.acquire('renewed');
      const byHand = await ours.acquire('by hand', BY_HAND);
      await step(clock, byMs);
      expect(renewed.isValid()).toBe(false);
      expect(byHand.isValid()).toBe(false);
      await settle();
      expect(renewed.isValid()).toBe(true);
      expect(byHand.isValid()).toBe(true);
      expect(backend.count('renew')).toBe(1);
    },
  );

  it('a process that holds locks detects it by itself', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', BY_HAND);
    await step(clock, 5_000);
    await clock.advance(1_000);
    expect(lock.isValid()).toBe(true);
  });

  it('a lock that is not renewed lasts no longer than it was granted', async () => {
    const { clock, ours, isHeld } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 10_000, renew: false });
    await clock.advance(4_000);
    await step(clock, 5_000);
    expect(await isOurs(lock)).toBe(true);
    expect(lock.remainingMs()).toBeLessThanOrEqual(6_000);
    await clock.advance(6_000);
    expect(await isHeld('key')).toBe(false);
  });

  it('extend() waits for the store and succeeds', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', BY_HAND);
    await step(clock, 2_000);
    await lock.extend(90_000);
    expect(lock.remainingMs()).toBe(89_100);
  });

  it('a short extension does not shorten the lease', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key');
    await step(clock, 2_000);
    await lock.extend(1_000);
    await clock.advance(5_000);
    expect(lock.isValid()).toBe(true);
  });

  it('a lock that the store has released is lost', async () => {
    const { clock, backend, ours } = lockFixture();
    const locks = [await ours.acquire('renewed'), await ours.acquire('by hand', BY_HAND)];
    backend.forgetAll();
    await step(clock, 2_000);
    for (const lock of locks) expect(await isOurs(lock)).toBe(false);
    for (const lock of locks) expect(lock.signal.aborted).toBe(true);
  });

  it('a store that does not answer confirms nothing, and is asked again after a pause', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key');
    await step(clock, 2_000);
    backend.next('renew', { refuse: true }, 2);
    expect(await isOurs(lock)).toBe(false);
    await expect(lock.extend(30_000)).rejects.toThrow(LockUnavailableError);
    expect(await isOurs(lock)).toBe(false);
    expect(backend.count('renew')).toBe(2);
    await clock.advance(1_000);
    expect(lock.isValid()).toBe(true);
  });

  it('a confirmation that was in flight before the next step does not count', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key');
    await step(clock, 2_000);
    backend.next('renew', { delayAnswerMs: 100 });
    lock.isValid();
    await settle();
    await step(clock, 2_000);
    const extending = lock.extend(30_000);
    await clock.advance(50);
    await extending;
    expect(lock.isValid()).toBe(true);
    expect(backend.count('renew')).toBe(3);
  });

  it('no request is sent once the lock was released', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key');
    await lock.release();
    await step(clock, 2_000);
    expect(await isOurs(lock)).toBe(false);
    await clock.advance(60_000);
    expect(backend.count('renew')).toBe(0);
    expect(clock.pending).toBe(0);
  });
});

describe('after a sleep of the machine', () => {
  it('the rest of a lease that is not renewed is read from the store', async () => {
    const { clock, locks, sleep } = sleeper();
    const lock = await locks.acquire('key', BY_HAND);
    await sleep(50_000);
    expect(await isOurs(lock)).toBe(true);
    expect(lock.remainingMs()).toBeLessThanOrEqual(10_000);
    const { signal } = lock;
    await clock.advance(10_000);
    expect(signal.aborted).toBe(true);
  });

  it('a lease of which the store is not certain is not valid until it is', async () => {
    const { clock, store, locks, sleep } = sleeper();
    const lock = await locks.acquire('key', BY_HAND);
    const inspect = vi.spyOn(store, 'inspect').mockImplementation(async (key) => {
      const record = await ScriptedBackend.prototype.inspect.call(store, key);
      return record && { ...record, isUncertain: true };
    });
    await sleep(5_000);
    expect(await isOurs(lock)).toBe(false);
    expect(lock.signal.aborted).toBe(false);
    inspect.mockRestore();
    await clock.advance(1_000);
    expect(await isOurs(lock)).toBe(true);
  });

  it('extend() rejects for a lock whose lease has expired in the store', async () => {
    const { locks, sleep } = sleeper();
    const lock = await locks.acquire('key', BY_HAND);
    await sleep(70_000);
    await expect(lock.extend(60_000)).rejects.toThrow(LockLostError);
  });

  it('a lock that another process holds by now is lost', async () => {
    const { store, locks, sleep } = sleeper();
    const lock = await locks.acquire('key', BY_HAND);
    await sleep(70_000);
    const others = locksOn(store);
    await others.acquire('key');
    expect(await isOurs(lock)).toBe(false);
    expect(lock.signal.aborted).toBe(true);
  });
});
