import { describe, expect, it } from '@jest/globals';
import { recordRequests } from '../request-log.js';
import { lockFixture } from '../lock-fixture.js';

describe('what one turn of the event loop asks for', () => {
  it('goes to the store together', async () => {
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

  it('goes on its own if it asks for a key twice, in the order in which it was asked', async () => {
    const { backend, ours } = lockFixture();
    const exchanges = recordRequests(backend);
    const [one, other] = await Promise.all([ours.tryAcquire('key'), ours.tryAcquire('key')]);
    expect(exchanges).toEqual([['acquire lock:key'], ['acquire lock:key']]);
    expect(one).not.toBeNull();
    expect(other).toBeNull();
  });

  it('has a withdrawal go behind the acquisition that it withdraws', async () => {
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

  it('has a limit of its own for each', async () => {
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
