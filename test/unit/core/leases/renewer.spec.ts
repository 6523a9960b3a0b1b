import { describe, expect, it } from 'vitest';
import { LockLostError } from '../../../../lib/core/errors.js';
import { lockFixture } from '../lock-fixture.js';

describe('the renewer', () => {
  it('renews a little after a third of the lease', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 30_000 });
    await clock.advance(9_999);
    expect(backend.count('renew')).toBe(0);
    await clock.advance(3_500);
    expect(backend.count('renew')).toBe(1);
    await clock.advance(600_000);
    expect(lock.isValid()).toBe(true);
  });

  it('does not renew a lock with renew: false', async () => {
    const { clock, backend, ours } = lockFixture();
    await ours.acquire('key', { leaseMs: 30_000, renew: false });
    await clock.advance(60_000);
    expect(backend.count('renew')).toBe(0);
  });

  it('retries during an outage until the lease ends, then the lock is lost', async () => {
    const { clock, backend, ours, eventNames } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 12_000 });
    const { signal } = lock;
    backend.next('renew', { refuse: true }, Infinity);
    await clock.advance(11_879);
    expect(signal.aborted).toBe(false);
    expect(eventNames().filter((event) => event === 'renewal-failed').length).toBeGreaterThanOrEqual(8);
    await clock.advance(1);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    const failures = backend.count('renew');
    await clock.advance(60_000);
    expect(backend.count('renew')).toBe(failures);
  });

  it('continues when the store is back before the end of the lease', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 12_000 });
    backend.next('renew', { refuse: true }, 5);
    await clock.advance(120_000);
    expect(lock.isValid()).toBe(true);
  });

  it('does not wait for a store that never answers', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 12_000 });
    backend.next('renew', { silence: true }, 2);
    await clock.advance(60_000);
    expect(lock.isValid()).toBe(true);
  });

  it('uses a late result', async () => {
    const { clock, backend, ours, message } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 12_000 });
    backend.next('renew', { delayAnswerMs: 2_500 });
    backend.next('renew', { refuse: true }, 5);
    await clock.advance(7_800);
    expect(message('renewal-failed')).toMatchObject({ failures: 1 });
    const [sentAtMs = NaN] = backend.sentAtMs('renew');
    expect(lock.remainingMs()).toBe(sentAtMs + 12_000 - 120 - 7_800);
  });

  it('reports at once that the store no longer has the grant', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 30_000 });
    backend.forgetAll();
    await clock.advance(13_000);
    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
    expect(await backend.inspect('lock:key')).toBeNull();
  });

  it('ignores a renewal that comes back after the release', async () => {
    const { clock, backend, ours, eventNames } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 30_000 });
    backend.next('renew', { delayRequestMs: 500 });
    while (backend.count('renew') === 0) await clock.advance(10);
    await lock.release();
    await clock.advance(60_000);
    expect(eventNames()).not.toContain('lost');
    expect(eventNames()).not.toContain('renewal-failed');
    expect(backend.count('renew')).toBe(1);
    expect(clock.pending).toBe(0);
  });

  it('reports once an event loop that was blocked for much of the lease', async () => {
    const { clock, ours, eventNames, message } = lockFixture();
    await Promise.all([1, 2, 3].map((index) => ours.acquire(`key:${index}`, { leaseMs: 12_000 })));
    await clock.advance(1_000);
    clock.freeze(8_000);
    await clock.advance(0);
    expect(eventNames().filter((event) => event === 'stalled')).toHaveLength(1);
    expect(message('stalled')).toMatchObject({ leaseMs: 12_000, held: 3 });
    expect(Number(message('stalled')?.['lateMs'])).toBeGreaterThanOrEqual(3_800);
  });

  it('renews locks that were acquired together in few batches', async () => {
    const { clock, backend, ours } = lockFixture();
    const locks = await Promise.all(
      Array.from({ length: 1_000 }, (_, index) => ours.acquire(`key:${index}`, { leaseMs: 60_000 })),
    );
    await clock.advance(26_000);
    // A twelfth of the lease, in steps of a 64th.
    expect(backend.count('renew')).toBeLessThanOrEqual(7);
    await clock.advance(600_000);
    expect(locks.every((lock) => lock.isValid())).toBe(true);
  });

  it('keeps locks separate: a failed renewal does not delay another', async () => {
    const { clock, backend, ours } = lockFixture();
    const sick = await ours.acquire('sick', { leaseMs: 12_000 });
    backend.next('renew', { silence: true });
    await clock.advance(1_000);
    const well = await ours.acquire('well', { leaseMs: 12_000 });
    await clock.advance(60_000);
    expect([sick.isValid(), well.isValid()]).toEqual([true, true]);
  });
});
