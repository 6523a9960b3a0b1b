import { describe, expect, it } from 'vitest';
import type { BatchResult, RequestBatch } from '../../../../lib/core/backend.js';
import { LockShutdownError, LockTimeoutError } from '../../../../lib/core/errors.js';
import type { Lock } from '../../../../lib/core/lock.js';
import { stateOf, lockFixture } from '../lock-fixture.js';

const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

describe('callers of one key in one process', () => {
  it('get it in the order of their calls, with growing fencing tokens', async () => {
    const { ours } = lockFixture();
    const served: number[] = [];
    const tokens: bigint[] = [];
    await Promise.all(
      times(200, (index) =>
        ours.withLock('key', {}, (lock) => {
          served.push(index);
          tokens.push(lock.fencingToken);
        }),
      ),
    );
    expect(served).toEqual(times(200, (index) => index));
    expect(tokens.every((token, index) => index === 0 || token > tokens[index - 1]!)).toBe(true);
  });

  it('hand it over 64 times without the store', async () => {
    const { backend, ours } = lockFixture();
    await Promise.all(times(32, () => ours.withLock('key', {}, () => undefined)));
    expect(backend.log).toEqual(['acquire', 'release']);
    // The store does not give more of them.
    backend.next('renew', { loseAnswer: true });
    await Promise.all(times(65, () => ours.withLock('key', {}, () => undefined)));
    expect(backend.log.slice(2)).toEqual(['acquire', 'renew', 'release', 'acquire', 'release']);
  });

  it('hand it over for longer if no other process waits at the store', async () => {
    const { backend, clock, ours } = lockFixture();
    const tokens: bigint[] = [];
    const work = async (lock: Lock) => {
      tokens.push(lock.fencingToken);
      await clock.advance(4);
    };
    await Promise.all(times(300, () => ours.withLock('key', { waitMs: 60_000 }, work)));
    expect(backend.count('acquire')).toBe(1);
    expect(tokens.every((token, index) => index === 0 || token > tokens[index - 1]!)).toBe(true);
  });

  it('do not use fencing tokens that arrive during the release', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('renew', { delayAnswerMs: 500 });
    await Promise.all(times(64, () => ours.withLock('key', {}, () => undefined)));
    const next = await ours.acquire('key');
    await clock.advance(500);
    expect(next.isValid()).toBe(true);
    expect(backend.count('acquire')).toBe(2);
  });

  it('get larger fencing tokens than all earlier callers, also of other processes', async () => {
    const { ours, theirs } = lockFixture();
    const tokens: bigint[] = [];
    for (const locks of [ours, theirs, ours]) {
      await Promise.all(times(64, () => locks.withLock('key', {}, (lock) => tokens.push(lock.fencingToken))));
    }
    expect(tokens.every((token, index) => index === 0 || token > tokens[index - 1]!)).toBe(true);
  });

  it('hand it over only for a limited time, however few they are', async () => {
    const { backend, clock, ours } = lockFixture();
    const first = await ours.acquire('key');
    const second = ours.acquire('key');
    await clock.advance(250);
    await first.release();
    await second;
    expect(backend.count('acquire')).toBe(2);
  });

  it.each([
    ['another lease', { leaseMs: 20_000 }],
    ['a lease without renewal', { renew: false }],
  ])('ask the store for who wants %s', async (_, options) => {
    const { backend, ours } = lockFixture();
    const first = await ours.acquire('key');
    const second = ours.acquire('key', options);
    await first.release();
    expect((await second).isValid()).toBe(true);
    expect(backend.count('acquire')).toBe(2);
  });

  it('request it from the store when less than half of the lease is left', async () => {
    const { backend, clock, ours } = lockFixture();
    const first = await ours.acquire('key', { leaseMs: 200 });
    const second = ours.acquire('key', { leaseMs: 200 });
    backend.next('renew', { refuse: true }, Infinity);
    await clock.advance(101);
    await first.release();
    expect((await second).remainingMs()).toBe(198);
    expect(backend.count('acquire')).toBe(2);
  });

  it('are renewed also when the previous caller had renew: false', async () => {
    const { clock, ours } = lockFixture();
    const first = await ours.acquire('key', { renew: false });
    const waiting = ours.acquire('key');
    await first.release();
    const second = await waiting;
    await clock.advance(60_000);
    expect(second.isValid()).toBe(true);
  });

  it('do not make a lock valid again that the machine slept through', async () => {
    const { clock, backend, ours } = lockFixture();
    const lock = await ours.acquire('key');
    const waiting = ours.acquire('key');
    waiting.catch(() => undefined);
    await clock.advance(1);
    clock.setWall(clock.wallMs() + 20_000); // The monotonic clock stood still.
    backend.next('renew', { refuse: true }, Infinity);
    await clock.advance(1_500);
    expect(lock.isValid()).toBe(false);
  });

  it('are renewed as one', async () => {
    const { clock, backend, ours } = lockFixture();
    const first = await ours.acquire('key', { leaseMs: 600 });
    const second = ours.acquire('key', { leaseMs: 600 });
    await clock.advance(100);
    await first.release();
    const lock = await second;
    await clock.advance(5_000);
    expect(lock.isValid()).toBe(true);
    expect(backend.count('acquire')).toBe(1);
    // One renewal in a fourth to a third of the lease, whoever has it.
    expect(backend.count('renew')).toBeLessThanOrEqual(5_100 / 150);
  });

  it('skip a caller that has left, and keep the order of the others', async () => {
    const { clock, ours } = lockFixture();
    const leaving = new AbortController();
    const first = await ours.acquire('key');
    const served: string[] = [];
    const serve = (name: string, options = {}) =>
      ours.withLock('key', { waitMs: 60_000, ...options }, () => void served.push(name));
    const others = [
      serve('aborted', { signal: leaving.signal }),
      serve('one'),
      serve('out of time', { waitMs: 50 }),
      serve('two'),
    ];
    leaving.abort(new Error('left'));
    await expect(others[0]).rejects.toThrow('left');
    const late = expect(others[2]).rejects.toThrow(LockTimeoutError);
    await clock.advance(50);
    await late;
    await first.release();
    await Promise.all([others[1], others[3]]);
    expect(served).toEqual(['one', 'two']);
  });

  it('request it from the store in order when the lock is lost', async () => {
    const { backend, clock, ours } = lockFixture();
    await ours.acquire('key', { leaseMs: 1_000 });
    const served: number[] = [];
    const others = times(3, (index) =>
      ours.withLock('key', { leaseMs: 1_000, waitMs: 60_000 }, () => void served.push(index)),
    );
    backend.next('renew', { refuse: true }, Infinity);
    await clock.advance(1_100);
    await Promise.all(others);
    expect(served).toEqual([0, 1, 2]);
  });

  it('detect soon that the store has released the key, before the next renewal', async () => {
    const { backend, clock, ours } = lockFixture();
    const stuck = await ours.acquire('key', { leaseMs: 600_000 });
    const waiting = ours.acquire('key', { leaseMs: 600_000 });
    await clock.advance(1);
    await backend.forceRelease('lock:key', stuck.fencingToken);
    await clock.advance(1_000);
    expect((await waiting).isValid()).toBe(true);
    expect(stuck.isValid()).toBe(false);
  });

  it('do not extend a lock with renew: false by waiting', async () => {
    const { clock, ours } = lockFixture();
    const held = await ours.acquire('key', { leaseMs: 5_000, renew: false });
    const waiting = ours.acquire('key');
    await clock.advance(5_100);
    expect(held.isValid()).toBe(false);
    expect((await waiting).isValid()).toBe(true);
  });

  it('wait for a lock that tryAcquire got', async () => {
    const { backend, ours } = lockFixture();
    const tried = (await ours.tryAcquire('key')) as Lock;
    const waiting = ours.acquire('key');
    expect(await stateOf(waiting)).toBe('pending');
    expect(backend.count('acquire')).toBe(1);
    await tried.release();
    expect((await waiting).isValid()).toBe(true);
  });

  it('are served after a tryAcquire that overtook them while the key was free', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    const theirLock = await theirs.acquire('key');
    backend.next('acquire', { delayRequestMs: 100 });
    const waiting = ours.acquire('key');
    await clock.advance(10);
    await theirLock.release();
    await clock.advance(10);
    const tried = (await ours.tryAcquire('key')) as Lock;
    expect(tried.isValid()).toBe(true);
    await clock.advance(100);
    await tried.release();
    expect((await waiting).fencingToken).toBeGreaterThan(tried.fencingToken);
  });

  it('send one acquisition at a time', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    const held = await theirs.acquire('key');
    let [open, mostOpen] = [0, 0];
    const exchange = backend.execute.bind(backend);
    backend.execute = async (requests: RequestBatch) => {
      const questions = requests.acquire?.length ?? 0;
      open += questions;
      mostOpen = Math.max(mostOpen, open);
      const answers = await exchange(requests);
      open -= questions;
      return answers;
    };
    const others = times(100, () => ours.withLock('key', {}, () => undefined));
    await clock.advance(1_000);
    await held.release();
    await clock.advance(1_000);
    await Promise.all(others);
    expect(mostOpen).toBe(1);
  });

  it('are distinguished by inspect and by a forced release', async () => {
    const { ours } = lockFixture();
    const first = await ours.acquire('key');
    const waiting = ours.acquire('key');
    await first.release();
    const second = await waiting;
    expect((await ours.inspect('key'))?.fencingToken).toBe(second.fencingToken);
    expect(await ours.forceRelease('key', first.fencingToken)).toBe(false);
    expect(await ours.inspect('key')).not.toBeNull();
    expect(await ours.forceRelease('key', second.fencingToken)).toBe(true);
    expect(await ours.inspect('key')).toBeNull();
  });
});

describe('in a store with a wait queue', () => {
  /** Answers that the asker has a place in its line. */
  function withLine() {
    const made = lockFixture();
    const released: string[] = [];
    const asked: string[] = [];
    const exchange = made.backend.execute.bind(made.backend);
    made.backend.execute = async (requests: RequestBatch): Promise<BatchResult> => {
      released.push(...(requests.release ?? []).map(({ holder }) => holder));
      asked.push(...(requests.acquire ?? []).map(({ holder }) => holder));
      const answers = await exchange(requests);
      const acquire = answers.acquire.map((answer, index) =>
        answer.kind === 'taken' && requests.acquire![index]!.retryWithinMs
          ? { ...answer, isQueued: true as const, willBeNotified: true as const }
          : answer,
      );
      return { ...answers, acquire };
    };
    return { ...made, released, asked };
  }

  it('the last waiter of the process releases the place when it leaves', async () => {
    const { clock, ours, theirs, released, asked } = withLine();
    await theirs.acquire('key');
    asked.length = 0;
    const refused = expect(ours.acquire('key', { waitMs: 100 })).rejects.toThrow(LockTimeoutError);
    await clock.advance(101);
    await refused;
    expect(released).toEqual([asked[0]]);
  });

  it('a waiter releases the place when the application shuts down', async () => {
    const { clock, ours, theirs, released, asked } = withLine();
    await theirs.acquire('key');
    asked.length = 0;
    const refused = expect(ours.acquire('key')).rejects.toThrow(LockShutdownError);
    await clock.advance(1);
    await ours.drain({ drainMs: 0, abortGraceMs: 0 });
    await ours.close();
    await refused;
    expect(released).toEqual([asked[0]]);
  });

  it('a waiter that leaves keeps the place for the remaining ones', async () => {
    const { clock, ours, theirs, released, asked } = withLine();
    const held = await theirs.acquire('key');
    asked.length = 0;
    const refused = expect(ours.acquire('key', { waitMs: 100 })).rejects.toThrow(LockTimeoutError);
    const waiting = ours.acquire('key');
    await clock.advance(101);
    await refused;
    expect(released).toEqual([]);
    await held.release();
    await clock.advance(2_100);
    expect((await waiting).isValid()).toBe(true);
    expect(new Set(asked).size).toBe(1);
  });

  it('a waiter with notices retries every one to two seconds', async () => {
    const { backend, clock, ours, theirs } = withLine();
    await theirs.acquire('key');
    const before = backend.count('acquire');
    const refused = expect(ours.acquire('key', { waitMs: 9_999 })).rejects.toThrow(LockTimeoutError);
    await clock.advance(9_999);
    await refused;
    expect(backend.count('acquire') - before).toBeLessThanOrEqual(10);
    expect(backend.count('acquire') - before).toBeGreaterThanOrEqual(5);
  });

  it('a waiter retries at once after a notice', async () => {
    const { clock, ours, theirs } = withLine();
    const held = await theirs.acquire('key');
    const waiting = ours.acquire('key', { waitMs: 60_000 });
    await clock.advance(1);
    await held.release();
    await clock.advance(0);
    expect((await waiting).isValid()).toBe(true);
  });

  it('a caller that does not wait takes no place', async () => {
    const { ours, theirs, released } = withLine();
    await theirs.acquire('key');
    await expect(ours.acquire('key', { waitMs: 0 })).rejects.toThrow(LockTimeoutError);
    expect(await ours.tryAcquire('key')).toBeNull();
    expect(released).toEqual([]);
  });
});
