import { describe, expect, it, vi } from 'vitest';
import { memoryBackend } from '../../../lib/backends/memory/index.js';
import { LockShutdownError, LockUnavailableError } from '../../../lib/core/errors.js';
import type { LockHandle } from '../../../lib/core/leases/lock-handle.js';
import { locksOn, stateOf, lockFixture } from './lock-fixture.js';

describe('a backend that two modules share', () => {
  it('stays open until the last of them has closed', async () => {
    const backend = memoryBackend();
    const close = vi.spyOn(backend, 'close');
    const [ours, theirs, unused] = [locksOn(backend), locksOn(backend), locksOn(backend)];
    await ours.withLock('key', {}, () => undefined);
    const lock = await theirs.acquire('key');
    await unused.close();
    await ours.close();
    expect(close).not.toHaveBeenCalled();
    await lock.release();
    await theirs.close();
    expect(close).toHaveBeenCalledTimes(1);
  });

  it('stays open for one that only reads and changes', async () => {
    const backend = memoryBackend();
    const close = vi.spyOn(backend, 'close');
    const [ours, theirs] = [locksOn(backend), locksOn(backend)];
    await ours.withLock('key', {}, () => undefined);
    await theirs.jobs.setPaused('job', true);
    await ours.close();
    expect(close).not.toHaveBeenCalled();
    await theirs.close();
    expect(close).toHaveBeenCalledTimes(1);
  });

  it('is closed by the last one also if another one has never sent anything', async () => {
    const backend = memoryBackend();
    const close = vi.spyOn(backend, 'close');
    locksOn(backend);
    const locks = locksOn(backend);
    await locks.withLock('key', {}, () => undefined);
    await locks.close();
    expect(close).toHaveBeenCalledTimes(1);
  });
});

describe('draining', () => {
  it('twice at once is draining once', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire('key');
    const limits = { drainMs: 10_000, abortGraceMs: 1_000 };
    const drains = [ours.drain(limits), ours.drain(limits)];
    await lock.release();
    await clock.advance(0);
    expect(await Promise.all(drains)).toEqual([[], []]);
  });

  it('releases a lock that was requested before and is granted late', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 2_500 });
    const refused = expect(ours.acquire('key')).rejects.toThrow(LockShutdownError);
    await clock.advance(100);
    const drained = ours.drain({ drainMs: 10_000, abortGraceMs: 1_000 });
    await refused;
    expect(await isHeld('key')).toBe(true);
    await clock.advance(2_500);
    expect(await drained).toEqual([]);
    expect(await isHeld('key')).toBe(false);
  });

  it('retries a release that failed at first', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    const lock = await ours.acquire('key');
    backend.next('release', { refuse: true }, 3);
    const refused = expect(lock.release()).rejects.toThrow(LockUnavailableError);
    await clock.advance(0);
    await refused;
    const closed = ours.drain({ drainMs: 0, abortGraceMs: 0 }).then(() => ours.close());
    await clock.advance(1_000);
    await closed;
    expect(await isHeld('key')).toBe(false);
  });

  it('aborts the signals of all locks, also if a listener of the first releases its lock', async () => {
    const { clock, ours } = lockFixture();
    const [first, second] = [await ours.acquire('first'), await ours.acquire('second')];
    first.signal.addEventListener('abort', () => void first.release());
    const drained = ours.drain({ drainMs: 1_000, abortGraceMs: 1_000 });
    await clock.advance(1_000);
    expect(second.signal.reason).toBeInstanceOf(LockShutdownError);
    await second.release();
    await clock.advance(0);
    expect(await drained).toEqual([]);
  });

  it('does not wait long for a store that does not answer', async () => {
    const { backend, clock, ours } = lockFixture();
    const lock = await ours.acquire('key');
    backend.next('release', { refuse: true }, 100);
    const refused = expect(lock.release()).rejects.toThrow(LockUnavailableError);
    await clock.advance(0);
    await refused;
    const drained = ours.drain({ drainMs: 0, abortGraceMs: 0 });
    await clock.advance(1_000);
    expect(await stateOf(drained)).toBe('fulfilled');
  });
});

describe('a tick that is granted while the application drains', () => {
  const tickAt = (wallMs: number) => ({ tickMs: wallMs, maxEarlyMs: 500, staleAfterMs: 60_000 });

  it('is waited for like other work', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 300 });
    const claiming = ours.jobs.claimTick('job', { tick: tickAt(clock.wallMs()) });
    await clock.advance(100);
    const drained = ours.drain({ drainMs: 10_000, abortGraceMs: 1_000 });
    await clock.advance(300);
    const run = await claiming;
    expect(await stateOf(drained)).toBe('pending');
    await (run as LockHandle).release();
    await clock.advance(0);
    expect(await drained).toEqual([]);
  });

  it('is waited for if the result of the first try was lost', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayRequestMs: 200, loseAnswer: true });
    backend.next('acquire', { delayAnswerMs: 300 });
    const claiming = ours.jobs.claimTick('job', { tick: tickAt(clock.wallMs()) });
    await clock.advance(100);
    const drained = ours.drain({ drainMs: 10_000, abortGraceMs: 1_000 });
    await clock.advance(300);
    expect(await stateOf(drained)).toBe('pending');
    await clock.advance(100);
    const run = await claiming;
    await clock.advance(100);
    expect(await stateOf(drained)).toBe('pending');
    await (run as LockHandle).release();
    await clock.advance(0);
    expect(await drained).toEqual([]);
  });

  it('does not run if it is granted after the end', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 3_000 });
    const claiming = ours.jobs.claimTick('job', { tick: tickAt(clock.wallMs()) });
    await clock.advance(100);
    const drained = ours.drain({ drainMs: 100, abortGraceMs: 100 });
    await clock.advance(2_000);
    await drained;
    await ours.close();
    await clock.advance(2_000);
    expect(await claiming).toMatchObject({ kind: 'unknown' });
  });
});

describe('however little time there is to drain', () => {
  it('a lock that was requested before is released', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 200 });
    const refused = expect(ours.acquire('key')).rejects.toThrow(LockShutdownError);
    await clock.advance(100);
    const drained = ours.drain({ drainMs: 0, abortGraceMs: 0 });
    await refused;
    await clock.advance(1_000);
    await drained;
    await ours.close();
    expect(await isHeld('key')).toBe(false);
  });
});

it('closing twice at once is closing once', async () => {
  const { backend, ours } = lockFixture();
  const close = vi.spyOn(backend, 'close');
  await Promise.all([ours.close(), ours.close()]);
  expect(close).toHaveBeenCalledTimes(1);
});

describe('after close', () => {
  it('the signals of work that still runs have aborted', async () => {
    const { ours } = lockFixture();
    const lock = await ours.acquire('key');
    await ours.close();
    expect(lock.signal.reason).toBeInstanceOf(LockShutdownError);
  });

  it('no release is retried', async () => {
    const { backend, clock, ours } = lockFixture();
    const lock = await ours.acquire('key');
    backend.next('release', { delayRequestMs: 500, loseAnswer: true });
    const released = expect(lock.release()).rejects.toThrow();
    await clock.advance(100);
    await ours.close();
    await clock.advance(1_000);
    await released;
    await clock.advance(60_000);
    expect(clock.pending).toBe(0);
  });

  it('no request reaches the backend, which would connect again', async () => {
    const { backend, clock, ours } = lockFixture();
    const lock = await ours.acquire('held');
    backend.next('acquire', { silence: true });
    const refused = expect(ours.acquire('key')).rejects.toThrow(LockShutdownError);
    await clock.advance(0);
    await ours.close();
    const asked = backend.log.length;
    await refused;
    await expect(lock.extend(60_000)).rejects.toThrow();
    await clock.advance(60_000);
    expect(backend.log).toHaveLength(asked);
  });

  it('nothing is renewed, and no timer is set', async () => {
    const { backend, clock, ours } = lockFixture();
    await ours.acquire('key');
    await ours.close();
    expect(clock.pending).toBe(0);
    await clock.advance(120_000);
    expect(backend.count('renew')).toBe(0);
  });

  it('a release rejects because the application has ended, not because of the store', async () => {
    const { backend, ours, eventNames } = lockFixture();
    const lock = await ours.acquire('key');
    await ours.close();
    await expect(lock.release()).rejects.toThrow(LockShutdownError);
    expect(backend.count('release')).toBe(0);
    expect(eventNames()).not.toContain('unavailable');
  });

  it('work that ends then still returns its value', async () => {
    const { clock, ours } = lockFixture();
    let end!: (value: string) => void;
    const work = ours.withLock('key', {}, () => new Promise<string>((resolve) => (end = resolve)));
    await clock.advance(0);
    await ours.close();
    end('value');
    expect(await work).toBe('value');
  });
});
