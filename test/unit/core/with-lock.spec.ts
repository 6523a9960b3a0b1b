import { describe, expect, it } from 'vitest';
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

  it('waits for the store if the lease is in doubt', async () => {
    const { backend, clock, ours } = lockFixture();
    const work = ours.withLock('key', {}, () => {
      backend.forgetAll();
      clock.setWall(clock.wallMs() + 60_000);
    });
    await expect(work).rejects.toThrow('was lost before the work');
  });
});
