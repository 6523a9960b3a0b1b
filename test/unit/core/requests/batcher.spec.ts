import { describe, expect, it } from 'vitest';
import { memoryBackend } from '../../../../lib/backends/memory/index.js';
import { bareLocks } from '../../../support/bare-locks.js';
import { recordRequests } from '../request-log.js';
import { lockFixture } from '../lock-fixture.js';

describe('the requests of one turn of the event loop', () => {
  it('are sent in one batch', async () => {
    const { backend, ours } = lockFixture();
    const [first, second] = await Promise.all([ours.acquire('first'), ours.acquire('second')]);
    const exchanges = recordRequests(backend);
    await Promise.all([
      first.release(),
      ours.acquire('third'),
      second.extend(60_000),
      ours.tryAcquire('fourth'),
    ]);
    expect(exchanges).toEqual([
      ['release lock:first', 'renew lock:second', 'acquire lock:third', 'acquire lock:fourth'],
    ]);
  });

  it('for the same key are sent in separate batches, in their order', async () => {
    const { backend, ours } = lockFixture();
    const exchanges = recordRequests(backend);
    const [one, other] = await Promise.all([ours.tryAcquire('key'), ours.tryAcquire('key')]);
    expect(exchanges).toEqual([['acquire lock:key'], ['acquire lock:key']]);
    expect(one).not.toBeNull();
    expect(other).toBeNull();
  });

  it('send a withdrawal after the acquisition that it withdraws', async () => {
    const { backend, ours } = lockFixture();
    const exchanges = recordRequests(backend);
    const leaving = new AbortController();
    const asked = ours.tryAcquire('key', { signal: leaving.signal });
    const again = ours.tryAcquire('key');
    leaving.abort(new Error('left'));
    await expect(asked).rejects.toThrow('left');
    expect(await again).toBeNull();
    await ours.tryAcquire('other');
    expect(exchanges).toEqual([
      ['acquire lock:key'],
      ['acquire lock:key'],
      ['release lock:key', 'acquire lock:other'],
    ]);
  });

  it('have a timeout each', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { silence: true });
    const short = ours.tryAcquire('short', { leaseMs: 600 });
    const long = ours.tryAcquire('long', { leaseMs: 30_000 });
    const failed: string[] = [];
    short.catch(() => failed.push('short'));
    long.catch(() => failed.push('long'));
    await clock.advance(300);
    expect(failed).toEqual(['short']);
    await clock.advance(700);
    expect(failed).toEqual(['short', 'long']);
  });
});

it('a loop of locks on a store that needs no I/O lets timers and I/O have their turn', async () => {
  const locks = bareLocks({ backend: memoryBackend(), namespace: 'lock' });
  const turns: number[] = [];
  setImmediate(() => turns.push(1));
  for (let count = 0; count < 1_000 && turns.length === 0; count += 1)
    await locks.withLock('key', {}, () => Promise.resolve());
  expect(turns).toHaveLength(1);
  await locks.close();
});
