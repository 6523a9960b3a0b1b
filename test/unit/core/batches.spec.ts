import { describe, expect, it } from '@jest/globals';
import type { Requests } from '../../../lib/core/backend.js';
import { world } from './world.js';

/** What each exchange asked for, as `verb key` in the order of the request. */
function recorded(backend: { exchange(requests: Requests): Promise<unknown> }): string[][] {
  const exchanges: string[][] = [];
  const exchange = backend.exchange.bind(backend) as (requests: Requests) => Promise<never>;
  backend.exchange = (requests: Requests) => {
    exchanges.push(
      Object.entries(requests).flatMap(([verb, list]: [string, readonly { key: string }[]]) =>
        list.map(({ key }) => `${verb} ${key}`),
      ),
    );
    return exchange(requests);
  };
  return exchanges;
}

describe('what one turn of the event loop asks for', () => {
  it('goes to the store together', async () => {
    const { backend, ours } = world();
    const [first, second] = await Promise.all([ours.acquire('first'), ours.acquire('second')]);
    const exchanges = recorded(backend);
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
    const { backend, ours } = world();
    const exchanges = recorded(backend);
    const [one, other] = await Promise.all([ours.tryAcquire('key'), ours.tryAcquire('key')]);
    expect(exchanges).toEqual([['acquire lock:key'], ['acquire lock:key']]);
    expect(one).not.toBeNull();
    expect(other).toBeNull();
  });

  it('keeps what is asked for after it from going before it', async () => {
    const { backend, ours } = world();
    const exchanges = recorded(backend);
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
    const { backend, clock, ours } = world();
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

describe('withLock', () => {
  it('answers once the release is on its way', async () => {
    const { backend, clock, ours, isHeld } = world();
    backend.next('release', { delayAnswerMs: 1_000 });
    expect(await ours.withLock('key', {}, () => 'done')).toBe('done');
    expect(await isHeld('key')).toBe(false);
    await clock.advance(1_000);
  });

  it('asks for the key again right behind its release', async () => {
    const { backend, ours } = world();
    const exchanges = recorded(backend);
    await ours.withLock('key', {}, () => undefined);
    await ours.withLock('key', {}, () => undefined);
    expect(exchanges).toEqual([
      ['acquire lock:key'],
      ['release lock:key'],
      ['acquire lock:key'],
      ['release lock:key'],
    ]);
  });

  it('publishes it when the store had forgotten the lock, although its work seemed to have it', async () => {
    const { backend, clock, ours, heard } = world();
    await ours.withLock('key', {}, () => backend.forgetAll());
    await clock.advance(0);
    expect(heard()).toContain('lost');
  });

  it('waits for the store if there is reason to doubt', async () => {
    const { backend, clock, ours } = world();
    const work = ours.withLock('key', {}, () => {
      backend.forgetAll();
      clock.setWall(clock.wallMs() + 60_000);
    });
    await expect(work).rejects.toThrow('no longer ours');
  });
});
