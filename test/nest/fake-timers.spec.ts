import { afterEach, describe, expect, it, vi } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LockService, LockTimeoutError, Locked } from '../../lib/index.js';
import { LockControl, LockTestingModule, SettableClock } from '../../lib/testing/index.js';

@Injectable()
class Service {
  @Locked('order:{0}')
  async ship(order: string): Promise<string> {
    return `${order} shipped`;
  }
}

const TIMERS = {
  'that begin now': () => vi.useFakeTimers(),
  'years away': () => vi.useFakeTimers({ now: Date.UTC(2001, 0, 1) }),
};

async function boot(clock?: SettableClock) {
  const app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot(clock && { clock })],
    providers: [Service],
  }).compile();
  await app.init();
  return { app, service: app.get(Service), locks: app.get(LockService), control: app.get(LockControl) };
}

describe.each(Object.entries(TIMERS))('under fake timers (%s)', (_, useFakeTimers) => {
  afterEach(() => void vi.useRealTimers());

  it('an application that booted before locks, waits, and closes', async () => {
    const { app, service, locks, control } = await boot();
    useFakeTimers();
    expect(await service.ship('7')).toBe('7 shipped');
    await control.take('order:7');
    await expect(locks.acquire('order:7', { waitMs: 20 })).rejects.toThrow(LockTimeoutError);
    const shipped = service.ship('7');
    await control.free('order:7');
    expect(await shipped).toBe('7 shipped');
    await locks.acquire('held');
    await app.close();
  });

  it('an application boots, locks and closes', async () => {
    useFakeTimers();
    const { app, service } = await boot();
    expect(await service.ship('7')).toBe('7 shipped');
    await app.close();
  });

  it('a lease lasts for its real time, whatever fake time is set or advanced', async () => {
    const { app, locks } = await boot();
    useFakeTimers();
    await locks.withLock('key', (lock) => {
      vi.advanceTimersByTime(3_600_000);
      lock.throwIfLost();
      expect(lock.isValid()).toBe(true);
    });
    await app.close();
  });

  it('a settable clock is advanced', async () => {
    const clock = new SettableClock();
    const { app, locks } = await boot(clock);
    useFakeTimers();
    const lock = await locks.acquire('key', { leaseMs: 5_000, renew: false });
    await clock.advance(5_000);
    expect(lock.signal.aborted).toBe(true);
    await app.close();
  });
});
