import { describe, expect, it } from '@jest/globals';
import { LockShutdownError } from '../../../lib/core/errors.js';
import { world } from './world.js';

describe('draining', () => {
  it('twice at once is draining once', async () => {
    const { clock, ours } = world();
    const lock = await ours.acquire('key');
    const limits = { drainMs: 10_000, abortGraceMs: 1_000 };
    const drains = [ours.drain(limits), ours.drain(limits)];
    await lock.release();
    await clock.advance(0);
    expect(await Promise.all(drains)).toEqual([[], []]);
  });

  it('gives back what was asked for before and is granted late', async () => {
    const { backend, clock, ours, isHeld } = world();
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
});

describe('after close', () => {
  it('nothing is asked of the backend, which would open again', async () => {
    const { backend, clock, ours } = world();
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

  it('nothing is renewed, and no timer is armed', async () => {
    const { backend, clock, ours } = world();
    await ours.acquire('key');
    await ours.close();
    expect(clock.pending).toBe(0);
    await clock.advance(120_000);
    expect(backend.count('renew')).toBe(0);
  });

  it('a release says that it comes too late, and does not blame the store', async () => {
    const { backend, ours, heard } = world();
    const lock = await ours.acquire('key');
    await ours.close();
    await expect(lock.release()).rejects.toThrow(LockShutdownError);
    expect(backend.count('release')).toBe(0);
    expect(heard()).not.toContain('unavailable');
  });

  it('work that ends then still gets its own value out', async () => {
    const { clock, ours } = world();
    let end!: (value: string) => void;
    const work = ours.withLock('key', {}, () => new Promise<string>((resolve) => (end = resolve)));
    await clock.advance(0);
    await ours.close();
    end('value');
    expect(await work).toBe('value');
  });
});
