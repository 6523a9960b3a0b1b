import { describe, expect, it } from '@jest/globals';
import { recordRequests } from './request-log.js';
import { lockFixture } from './lock-fixture.js';

describe('withLock', () => {
  it('answers once the release is on its way', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('release', { delayAnswerMs: 1_000 });
    expect(await ours.withLock('key', {}, () => 'done')).toBe('done');
    expect(await isHeld('key')).toBe(false);
    await clock.advance(1_000);
  });

  it('asks for the key again right behind its release', async () => {
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

  it('publishes it when the store had forgotten the lock, although its work seemed to have it', async () => {
    const { backend, clock, ours, eventNames } = lockFixture();
    await ours.withLock('key', {}, () => backend.forgetAll());
    await clock.advance(0);
    expect(eventNames()).toContain('lost');
  });

  it('waits for the store if there is reason to doubt', async () => {
    const { backend, clock, ours } = lockFixture();
    const work = ours.withLock('key', {}, () => {
      backend.forgetAll();
      clock.setWall(clock.wallMs() + 60_000);
    });
    await expect(work).rejects.toThrow('was lost before the work');
  });
});
