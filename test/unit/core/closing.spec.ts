import { describe, expect, it } from '@jest/globals';
import { LockShutdownError } from '../../../lib/core/errors.js';
import { world } from './world.js';

describe('after close', () => {
  it('nothing is renewed, and no timer is armed', async () => {
    const { backend, clock, ours } = world();
    await ours.acquire('key');
    await ours.close();
    await clock.advance(120_000);
    expect(backend.count('renew')).toBe(0);
    expect(clock.pending).toBe(0);
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
