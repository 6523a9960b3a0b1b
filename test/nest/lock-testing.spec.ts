import { describe, expect, it } from 'vitest';
import { Test } from '@nestjs/testing';
import { LockConfigError, LockService, LockTimeoutError, LockUnavailableError } from '../../lib/index.js';
import {
  LockControl,
  LockTestingModule,
  type LockTestingModuleOptions,
  SettableClock,
} from '../../lib/testing/index.js';

async function boot(options?: LockTestingModuleOptions) {
  const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot(options)] }).compile();
  await app.init();
  return { app, locks: app.get(LockService), control: app.get(LockControl) };
}

describe('LockTestingModule', () => {
  it('acquires a key for another holder, and frees it again', async () => {
    const { app, locks, control } = await boot();
    await control.take('key');
    await expect(locks.acquire('key', { waitMs: 0 })).rejects.toThrow(LockTimeoutError);
    await control.free('key');
    expect(await locks.withLock('key', () => 'free')).toBe('free');
    await app.close();
  });

  it('makes a lock lost', async () => {
    const { app, locks, control } = await boot();
    const lock = await locks.acquire('key');
    await control.lose('key');
    expect(lock.signal.aborted).toBe(true);
    await app.close();
  });

  it('makes the store unreachable, and reachable again', async () => {
    const { app, locks, control } = await boot();
    control.disconnect();
    await expect(locks.acquire('key')).rejects.toThrow(LockUnavailableError);
    control.reconnect();
    expect(await locks.withLock('key', () => 'back')).toBe('back');
    await app.close();
  });

  it.each([
    [
      { clok: 1 },
      /Wrong options of LockTestingModule.*no option 'clok'; it knows clock, name, isGlobal, namespace/,
    ],
    [{ backend: {} }, /no option 'backend'/],
    [{ clock: 5 }, /expected options.clock to be a clock, such as a SettableClock, got 5/],
  ])('refuses the options %j', (options, message) => {
    expect(() => LockTestingModule.forRoot(options as object)).toThrow(LockConfigError);
    expect(() => LockTestingModule.forRoot(options as object)).toThrow(message);
  });

  it('throws errors that explain what is wrong with the test', async () => {
    const { app, locks, control } = await boot();
    await expect(control.lose('key')).rejects.toThrow(/to be held, but it is free/);
    await expect(control.free('key')).rejects.toThrow(/taken with take\(\)/);
    const lock = await locks.acquire('key');
    await expect(control.take('key')).rejects.toThrow(/to be free, but it is held/);
    await lock.release();
    await app.close();
  });

  it('lets a lease expire when the clock is advanced', async () => {
    const clock = new SettableClock();
    const { app, locks } = await boot({ clock });
    const lock = await locks.acquire('key', { leaseMs: 5_000, renew: false });
    await clock.advance(5_000);
    expect(lock.signal.aborted).toBe(true);
    await app.close();
  });

  it('closes although a lock is held and time stands still', async () => {
    const { app, locks } = await boot({ clock: new SettableClock() });
    await locks.acquire('key');
    await app.close();
    await expect(locks.tryAcquire('key')).rejects.toThrow(/shutting down/);
  });
});
