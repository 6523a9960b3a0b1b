import { describe, expect, it } from 'vitest';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { recordRequests } from './request-log.js';
import { lockFixture, stateOf } from './lock-fixture.js';

describe('withLock', () => {
  it('resolves once the release was sent', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('release', { delayAnswerMs: 1_000 });
    expect(await ours.withLock('key', {}, () => 'done')).toBe('done');
    expect(await isHeld('key')).toBe(false);
    await clock.advance(1_000);
  });

  it('waits for the result of the release if the request cannot leave the process at once', async () => {
    const { backend, clock, ours } = lockFixture();
    Object.assign(backend, { isReady: false });
    backend.next('release', { delayAnswerMs: 1_000 });
    const work = ours.withLock('key', {}, () => 'done');
    await clock.advance(999);
    expect(await stateOf(work)).toBe('pending');
    await clock.advance(1);
    expect(await work).toBe('done');
  });

  it('requests the key again right after its release', async () => {
    const { backend, clock, ours } = lockFixture();
    const exchanges = recordRequests(backend);
    backend.next('release', { delayAnswerMs: 1_000 });
    await ours.withLock('key', {}, () => undefined);
    await ours.withLock('key', {}, () => undefined);
    await clock.advance(1_000);
    expect(exchanges).toEqual([
      ['acquire lock:key'],
      ['release lock:key'],
      ['acquire lock:key'],
      ['release lock:key'],
    ]);
  });

  it('publishes the loss when the store had lost the lock during the work', async () => {
    const { backend, clock, ours, eventNames } = lockFixture();
    await ours.withLock('key', {}, () => backend.forgetAll());
    await clock.advance(0);
    expect(eventNames()).toContain('lost');
  });

  it.each([1, 2, 3, 4])(
    'loses the lock once, if its lease ends right before the %i. look at the clock after the work',
    async (last) => {
      const { clock, ours, eventNames } = lockFixture();
      const { monotonicMs } = SettableClock.prototype;
      let looks = -Infinity;
      clock.monotonicMs = () => {
        looks += 1;
        if (looks === last) clock.freeze(60_000);
        return monotonicMs.call(clock);
      };
      await ours.withLock('key', {}, () => void (looks = 0)).catch(() => undefined);
      await clock.advance(10_000);
      expect(eventNames().filter((name) => name === 'lost').length).toBeLessThan(2);
      expect(eventNames().filter((name) => name === 'lost' || name === 'released')).toHaveLength(1);
      // Nothing is counted as in use any more, nor as less than that.
      const held = await ours.acquire('other');
      const draining = ours.drain({ drainMs: 5_000, abortGraceMs: 0 });
      await clock.advance(1_000);
      expect(await stateOf(draining)).toBe('pending');
      await held.release();
      await clock.advance(1_000);
      expect(await stateOf(draining)).toBe('fulfilled');
    },
  );

  it('waits for the store if the lease is in doubt', async () => {
    const { backend, clock, ours } = lockFixture();
    const work = ours.withLock('key', {}, () => {
      backend.forgetAll();
      clock.setWall(clock.wallMs() + 60_000);
    });
    await expect(work).rejects.toThrow('was lost before the work');
  });
});
