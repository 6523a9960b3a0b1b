import { describe, expect, it } from 'vitest';
import { LockConfigError, LockLostError, LockUnavailableError } from '../../../../lib/core/errors.js';
import type { ScriptedBackend } from '../../scripted-backend.js';
import { lockFixture } from '../lock-fixture.js';

const NO_RENEWAL = { leaseMs: 10_000, renew: false };

describe('a lease', () => {
  it('is valid for its time less the drift that two clocks may have', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', NO_RENEWAL);
    expect(lock.remainingMs()).toBe(9_900);
    await clock.advance(9_899);
    expect(lock.isValid()).toBe(true);
    await clock.advance(1);
    expect(lock.isValid()).toBe(false);
    expect(lock.remainingMs()).toBe(0);
  });

  it('counts from before the request was sent, not from its result', async () => {
    const { clock, backend, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 4_000 });
    const acquiring = ours.acquire('key', NO_RENEWAL);
    await clock.advance(4_000);
    expect((await acquiring).remainingMs()).toBe(5_900);
  });

  it('counts from before its renewal was sent, too', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 9_000 });
    backend.next('renew', { delayAnswerMs: 1_000 });
    await clock.advance(5_000);
    const [sentAtMs = NaN] = backend.sentAtMs('renew');
    expect(lock.remainingMs()).toBe(sentAtMs + 9_000 - 90 - 5_000);
  });

  it('ends here before it ends in the store', async () => {
    const { clock, backend, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayRequestMs: 1_000 });
    const acquiring = ours.acquire('key', NO_RENEWAL);
    await clock.advance(1_000);
    const lock = await acquiring;
    while (lock.isValid()) await clock.advance(10);
    expect(await isHeld('key')).toBe(true);
  });

  it('aborts its signal at the end of validity', async () => {
    const { clock, ours, eventNames } = lockFixture();
    const lock = await ours.acquire('key', NO_RENEWAL);
    const { signal } = lock;
    await clock.advance(9_899);
    expect(signal.aborted).toBe(false);
    await clock.advance(1);
    expect(signal.aborted).toBe(true);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(eventNames()).toContain('lost');
  });

  it('detects its end before any timer ran', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', NO_RENEWAL);
    clock.freeze(60_000);
    expect(lock.isValid()).toBe(false);
    expect(() => lock.throwIfLost()).toThrow(LockLostError);
    expect(lock.signal.aborted).toBe(true);
  });

  it('is not valid after the machine slept, until a renewal confirms it', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 30_000 });
    clock.setWall(clock.wallMs() + 5_000);
    expect(lock.isValid()).toBe(false);
    expect(() => lock.throwIfLost()).toThrow(/slept or its clock was set/);
    await clock.advance(13_000);
    expect(lock.isValid()).toBe(true);
    expect(lock.signal.aborted).toBe(false);
  });

  it('counts from its renewal alone once the machine slept', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 5_000 });
    await lock.extend(60_000);
    clock.setWall(clock.wallMs() + 50_000);
    await clock.advance(1);
    expect(lock.isValid()).toBe(false);
    await clock.advance(1_500);
    expect(lock.isValid()).toBe(true);
    expect(lock.remainingMs()).toBeLessThan(5_000);
  });

  it('is not valid when the confirmation was in flight while the machine slept', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 30_000 });
    backend.next('renew', { delayAnswerMs: 500 });
    await clock.advance(10_200);
    clock.setWall(clock.wallMs() + 60_000);
    await clock.advance(300);
    expect(lock.isValid()).toBe(false);
  });

  it('is not valid when the grant was in flight while the machine slept', async () => {
    const { clock, backend, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 500 });
    const acquiring = ours.acquire('key', { leaseMs: 30_000 });
    await clock.advance(200);
    clock.setWall(clock.wallMs() + 60_000);
    await clock.advance(300);
    expect((await acquiring).isValid()).toBe(false);
  });

  it('is not restored by a renewal once it is lost', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 3_000 });
    backend.next('renew', { delayAnswerMs: 10_000 });
    backend.next('renew', { refuse: true }, 100);
    await clock.advance(20_000);
    expect(lock.isValid()).toBe(false);
    expect(lock.signal.aborted).toBe(true);
  });

  it.each([
    ['was confirmed', () => undefined],
    ['had no reply', (backend: ScriptedBackend) => backend.next('renew', { loseAnswer: true })],
    ['is on its way', (backend: ScriptedBackend) => backend.next('renew', { delayAnswerMs: 1_000 })],
  ])('is not longer for the next caller of the process after an extension that %s', async (_, prepare) => {
    const { backend, clock, ours } = lockFixture();
    const lock = await ours.acquire('key', { leaseMs: 30_000 });
    const next = ours.acquire('key', { leaseMs: 30_000 });
    prepare(backend);
    const extended = lock.extend(600_000).catch(() => undefined);
    await clock.advance(0);
    const released = lock.release();
    await clock.advance(2_000);
    await Promise.all([extended, released]);
    expect((await next).remainingMs()).toBeLessThan(30_000);
    expect((await ours.inspect('key'))!.remainingMs).toBeLessThanOrEqual(30_000);
  });

  it('is longer after it was extended, and never shorter', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key', NO_RENEWAL);
    await lock.extend(60_000);
    expect(lock.remainingMs()).toBe(59_400);
    await lock.extend(1_000);
    expect(lock.remainingMs()).toBe(59_400);
    await clock.advance(59_000);
    expect(lock.isValid()).toBe(true);
  });

  it('cannot be extended once it is lost, or by an invalid lease', async () => {
    const { backend, ours } = lockFixture();
    const lock = await ours.acquire('key', NO_RENEWAL);
    await expect(lock.extend(0)).rejects.toThrow(LockConfigError);
    backend.forgetAll();
    await expect(lock.extend(10_000)).rejects.toThrow(LockLostError);
    expect(lock.signal.aborted).toBe(true);
  });

  it('rejects when the store did not confirm an extension', async () => {
    const { backend, ours } = lockFixture();
    const lock = await ours.acquire('key', NO_RENEWAL);
    backend.next('renew', { loseAnswer: true });
    await expect(lock.extend(60_000)).rejects.toThrow(LockUnavailableError);
    expect(lock.remainingMs()).toBe(9_900);
  });

  it('is given back once', async () => {
    const { ours, isHeld } = lockFixture();
    const lock = await ours.acquire('key');
    expect(await lock.release()).toBe(true);
    expect(await lock.release()).toBe(false);
    expect(lock.isValid()).toBe(false);
    expect(await isHeld('key')).toBe(false);
  });

  it('is released at the end of its block', async () => {
    const { ours, isHeld } = lockFixture();
    {
      await using lock = await ours.acquire('key');
      expect(await isHeld(lock.key)).toBe(true);
    }
    expect(await isHeld('key')).toBe(false);
  });

  it('returns false when it is released too late', async () => {
    const { clock, ours, theirs } = lockFixture();
    const late = await ours.acquire('key', NO_RENEWAL);
    clock.freeze(10_001);
    const next = await theirs.acquire('key');
    expect(await late.release()).toBe(false);
    expect(next.isValid()).toBe(true);
    expect(await theirs.inspect('key')).toMatchObject({ instance: 'theirs' });
  });

  it('leaves no timer behind', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key');
    await clock.advance(25_000);
    await lock.release();
    await clock.advance(60_000);
    expect(clock.pending).toBe(0);
  });
});
