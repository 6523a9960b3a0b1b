import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import {
  LockConfigError,
  LockLostError,
  LockReentryError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../../../lib/core/errors.js';
import type { Lock } from '../../../../lib/core/lock.js';
import { stateOf, lockFixture } from '../lock-fixture.js';

describe('acquire of a taken key', () => {
  it('waits, and is granted the key when it is released', async () => {
    const { ours, theirs, eventNames } = lockFixture();
    const held = await theirs.acquire('key');
    const waiting = ours.acquire('key');
    expect(await stateOf(waiting)).toBe('pending');
    await held.release();
    expect((await waiting).isValid()).toBe(true);
    expect(eventNames().filter((event) => event === 'contended')).toHaveLength(1);
  });

  it('is granted the key when the lease of a dead holder has expired', async () => {
    const { clock, ours, theirs } = lockFixture();
    await theirs.acquire('key', { leaseMs: 5_000, renew: false });
    const waiting = ours.acquire('key');
    await clock.advance(5_020);
    expect((await waiting).isValid()).toBe(true);
  });

  it('leaves nobody in the queue if its signal cannot be listened to', async () => {
    const { ours, theirs } = lockFixture();
    const held = await theirs.acquire('key');
    const { signal } = new AbortController();
    signal.addEventListener = () => {
      throw new TypeError('foreign');
    };
    await expect(ours.acquire('key', { signal })).rejects.toThrow('foreign');
    const next = ours.acquire('key');
    await held.release();
    expect((await next).isValid()).toBe(true);
  });

  it('rejects with LockTimeoutError after waitMs, not earlier', async () => {
    const { clock, ours, theirs, eventNames } = lockFixture();
    await theirs.acquire('key');
    const waiting = ours.acquire('key', { waitMs: 3_000 });
    const refused = expect(waiting).rejects.toThrow(LockTimeoutError);
    await clock.advance(2_999);
    expect(await stateOf(waiting)).toBe('pending');
    await clock.advance(1);
    await refused;
    expect(eventNames()).toContain('timeout');
  });

  it('says in LockTimeoutError when the lease of another process ends', async () => {
    const { clock, ours, theirs } = lockFixture();
    await theirs.acquire('key', { leaseMs: 30_000, renew: false });
    const refused = expect(ours.acquire('key', { waitMs: 3_000 })).rejects.toThrow(
      /If its holder has died, the lock is free when its lease ends, in (2699\d|27000) ms\.$/,
    );
    await clock.advance(3_000);
    await refused;
  });

  it('does not mention the lease of a holder in the same process', async () => {
    const { clock, ours } = lockFixture();
    await ours.acquire('key');
    const refused = expect(ours.acquire('key', { waitMs: 3_000 })).rejects.toThrow(/shorter\.$/);
    await clock.advance(3_000);
    await refused;
  });

  it('sends one request if it does not wait', async () => {
    const { backend, ours, theirs } = lockFixture();
    await theirs.acquire('key');
    await expect(ours.acquire('key', { waitMs: 0 })).rejects.toThrow(LockTimeoutError);
    expect(backend.count('acquire')).toBe(2);
  });

  it('may wait forever', async () => {
    const { clock, ours, theirs } = lockFixture();
    const held = await theirs.acquire('key');
    const waiting = ours.acquire('key', { waitMs: Infinity });
    await clock.advance(3_600_000);
    await held.release();
    expect((await waiting).isValid()).toBe(true);
  });

  it('finds the key free by retries when release notices do not arrive', async () => {
    const { clock, backend, ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const waiting = ours.acquire('key');
    await clock.advance(100);
    backend.forgetAll(); // Frees the key and tells nobody.
    await clock.advance(500);
    expect((await waiting).isValid()).toBe(true);
  });

  it('rejects with the reason of its signal', async () => {
    const { ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const controller = new AbortController();
    const waiting = ours.acquire('key', { signal: controller.signal });
    await stateOf(waiting);
    const reason = new Error('the client hung up');
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
  });

  it('sends no request after its signal has aborted', async () => {
    const { clock, backend, ours, theirs } = lockFixture();
    const held = await theirs.acquire('key', { renew: false });
    const controller = new AbortController();
    const waiting = ours.acquire('key', { signal: controller.signal });
    await stateOf(waiting);
    controller.abort();
    await expect(waiting).rejects.toThrow(/abort/);
    const asked = backend.count('acquire');
    await held.release();
    await clock.advance(60_000);
    expect(backend.count('acquire')).toBe(asked);
    expect(clock.pending).toBe(0);
  });

  it('releases a grant that arrives after its signal has aborted', async () => {
    const { clock, backend, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 500 });
    const controller = new AbortController();
    const asking = ours.acquire('key', { signal: controller.signal });
    await clock.advance(100);
    controller.abort();
    await expect(asking).rejects.toThrow(/abort/);
    expect(await isHeld('key')).toBe(true);
    await clock.advance(400);
    expect(await isHeld('key')).toBe(false);
  });

  it('rejects if a subscriber aborts its signal while the call begins', async () => {
    const { ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const controller = new AbortController();
    const onStart = () => controller.abort('enough');
    subscribe('tracing:nestjs-distributed-lock:acquire:start', onStart);
    const asking = ours.acquire('key', { signal: controller.signal });
    unsubscribe('tracing:nestjs-distributed-lock:acquire:start', onStart);
    expect(await stateOf(asking)).toBe('rejected');
    await expect(asking).rejects.toBe('enough');
  });

  it('sends nothing if its signal has already aborted', async () => {
    const { backend, ours } = lockFixture();
    await expect(ours.acquire('key', { signal: AbortSignal.abort('no') })).rejects.toBe('no');
    await expect(ours.tryAcquire('key', { signal: AbortSignal.abort('no') })).rejects.toBe('no');
    expect(backend.count('acquire')).toBe(0);
  });

  it('rejects at once if the store cannot be reached', async () => {
    const { backend, ours } = lockFixture();
    backend.next('acquire', { refuse: true });
    const refused = ours.acquire('key');
    await expect(refused).rejects.toThrow(LockUnavailableError);
    await expect(refused).rejects.toMatchObject({
      cause: expect.objectContaining({ message: 'connection refused' }),
    });
  });

  it('stays queued during a short outage of the store', async () => {
    const { clock, backend, ours, theirs } = lockFixture();
    await theirs.acquire('key', { leaseMs: 3_000, renew: false });
    const waiting = ours.acquire('key', { waitMs: 60_000 });
    await stateOf(waiting);
    backend.next('acquire', { refuse: true }, 10);
    await clock.advance(20_000);
    expect((await waiting).isValid()).toBe(true);
  });

  it('stays queued while the store is silent, also when its connection is closed for that', async () => {
    const { clock, backend, ours } = lockFixture();
    backend.next('acquire', { silence: true });
    backend.next('acquire', { refuse: true }, 3);
    const waiting = ours.acquire('key', { waitMs: 20_000 });
    await clock.advance(10_000);
    expect((await waiting).isValid()).toBe(true);
  });

  it('waits for the result of an open acquisition no longer than for one of its own', async () => {
    const { clock, backend, ours } = lockFixture();
    backend.next('acquire', { silence: true });
    const patient = ours.acquire('key', { waitMs: 60_000 });
    const hasty = ours.acquire('key', { waitMs: 100 });
    const refused = expect(hasty).rejects.toThrow(LockUnavailableError);
    await clock.advance(1_001);
    expect(await stateOf(hasty)).toBe('rejected');
    await refused;
    await clock.advance(10_000);
    expect((await patient).isValid()).toBe(true);
  });

  it('retries less often during an outage of the store', async () => {
    const { clock, backend, ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const waiting = ours.acquire('key', { waitMs: Infinity });
    await stateOf(waiting);
    backend.next('acquire', { refuse: true }, Infinity);
    const before = backend.count('acquire');
    await clock.advance(60_000);
    expect(backend.count('acquire') - before).toBeLessThan(130);
    expect(backend.count('release')).toBe(0);
  });

  it('rejects with LockUnavailableError, not LockTimeoutError, if the store is away at the end', async () => {
    const { clock, backend, ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const refused = expect(ours.acquire('key', { waitMs: 5_000 })).rejects.toThrow(LockUnavailableError);
    await clock.advance(100);
    backend.next('acquire', { refuse: true }, Infinity);
    await clock.advance(5_000);
    await refused;
  });

  it('rejects at once if no retry can help', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const waiting = ours.acquire('key', { waitMs: 60_000 });
    const refused = expect(waiting).rejects.toThrow('no table');
    await clock.advance(0);
    backend.execute = () => Promise.reject(new LockConfigError('no table'));
    await clock.advance(1_000);
    await refused;
  });

  it('tryAcquire returns null for a taken key and rejects for an unknown outcome', async () => {
    const { backend, ours, theirs } = lockFixture();
    await theirs.acquire('key');
    expect(await ours.tryAcquire('key')).toBeNull();
    backend.next('acquire', { refuse: true });
    await expect(ours.tryAcquire('key')).rejects.toThrow(LockUnavailableError);
  });

  it('is counted by inspect', async () => {
    const { ours, theirs } = lockFixture();
    await theirs.acquire('key');
    const controller = new AbortController();
    const waiting = ours.acquire('key', { signal: controller.signal });
    await stateOf(waiting);
    expect(await ours.inspect('key')).toMatchObject({ instance: 'theirs', waiting: 1 });
    controller.abort();
    await expect(waiting).rejects.toThrow();
    expect(await ours.inspect('key')).toMatchObject({ waiting: 0 });
  });
});

describe('a caller that already holds a key', () => {
  it('does not wait for itself', async () => {
    const { ours } = lockFixture();
    await ours.withLock('key', {}, async () => {
      await expect(ours.acquire('key')).rejects.toThrow(LockReentryError);
      await expect(ours.tryAcquire('key')).rejects.toThrow(LockReentryError);
      await expect(ours.withLock('key', {}, () => 1)).rejects.toThrow(/reentrant: true/);
    });
  });

  it('is only the work under the lock: other callers of the process wait', async () => {
    const { ours } = lockFixture();
    const lock = await ours.acquire('key');
    await expect(ours.acquire('key', { waitMs: 0 })).rejects.toThrow(LockTimeoutError);
    await lock.release();
  });

  it('may acquire another key', async () => {
    const { ours } = lockFixture();
    expect(await ours.withLock('outer', {}, () => ours.withLock('inner', {}, () => 'both'))).toBe('both');
  });

  it('re-enters the outer lock with reentrant: true, and cannot release it', async () => {
    const { ours, isHeld } = lockFixture();
    await ours.withLock('key', {}, async (outer) => {
      const joined = await ours.acquire('key', { reentrant: true });
      expect(joined.fencingToken).toBe(outer.fencingToken);
      expect(await joined.release()).toBe(true);
      expect(await joined.release()).toBe(false);
      expect(joined.isValid()).toBe(false);
      expect(outer.isValid()).toBe(true);
      expect(await isHeld('key')).toBe(true);
    });
  });

  it('acquires the key again after it has released the outer lock', async () => {
    const { ours, theirs } = lockFixture();
    await ours.withLock('key', {}, async (outer) => {
      await outer.release();
      const other = await theirs.acquire('key');
      await expect(ours.acquire('key', { reentrant: true, waitMs: 0 })).rejects.toThrow(LockTimeoutError);
      await other.release();
      expect((await ours.acquire('key')).fencingToken > outer.fencingToken).toBe(true);
    });
  });

  it('cannot re-enter a lost lock', async () => {
    const { clock, ours } = lockFixture();
    const work = ours.withLock('key', { leaseMs: 5_000, renew: false }, async () => {
      clock.freeze(5_000);
      await ours.withLock('key', { reentrant: true }, () => 'worked');
    });
    await expect(work).rejects.toThrow(LockLostError);
  });

  it('may end the inner work after the wall clock was set', async () => {
    const { clock, ours } = lockFixture();
    const work = ours.withLock('key', {}, () =>
      ours.withLock('key', { reentrant: true }, () => {
        clock.setWall(clock.wallMs() + 2_000);
        return 'worked';
      }),
    );
    expect(await work).toBe('worked');
  });

  it('rejects the inner work that outlived the outer lock', async () => {
    const { ours } = lockFixture();
    let end!: () => void;
    let joined!: Promise<unknown>;
    const outer = ours.withLock('key', {}, () => {
      joined = ours.withLock(
        'key',
        { reentrant: true },
        () => new Promise<void>((resolve) => (end = resolve)),
      );
      return 'early';
    });
    expect(await outer).toBe('early');
    end();
    await expect(joined).rejects.toThrow(LockLostError);
  });

  it.each([
    ['ends', (_: Lock) => undefined],
    ['releases the lock by hand', (lock: Lock) => lock.release()],
  ])(
    'aborts the inner work, and publishes only the release, when the outer work %s first',
    async (_, endOuter) => {
      const { ours, eventNames } = lockFixture();
      let joined!: Lock;
      let inner!: Promise<unknown>;
      await ours.withLock('key', {}, async (outer) => {
        const hasJoined = new Promise<void>((resolve) => {
          inner = ours.withLock('key', { reentrant: true }, (lock) => {
            joined = lock;
            resolve();
            return new Promise((_, reject) =>
              lock.signal.addEventListener('abort', () => reject(lock.signal.reason as Error)),
            );
          });
          inner.catch(() => undefined);
        });
        await hasJoined;
        await endOuter(outer);
      });
      await expect(inner).rejects.toThrow(LockLostError);
      await expect(inner).rejects.toThrow(/re-entered.*AsyncResource/);
      expect(joined.isValid()).toBe(false);
      expect(eventNames()).toEqual(['acquired', 'released']);
    },
  );

  it('aborts the inner work when the lease expires', async () => {
    const { clock, ours } = lockFixture();
    const work = ours.withLock('key', { leaseMs: 5_000, renew: false }, () =>
      ours.withLock('key', { reentrant: true }, async ({ signal }) => {
        await clock.advance(5_000);
        return signal.aborted;
      }),
    );
    await expect(work).rejects.toThrow(LockLostError);
  });

  it('may acquire it again afterwards, also in calls that it left running', async () => {
    const { ours } = lockFixture();
    let later!: Promise<unknown>;
    await ours.withLock('key', {}, () => {
      later = new Promise((resolve) => setImmediate(resolve)).then(() => ours.tryAcquire('key'));
    });
    expect(await later).not.toBeNull();
  });
});

describe('ten thousand keys, each locked once', () => {
  it('leave no timer, listener or entry behind', async () => {
    const { clock, backend, ours } = lockFixture();
    const { signal } = new AbortController();
    for (let batch = 0; batch < 100; batch += 1) {
      const keys = Array.from({ length: 100 }, (_, index) => `key:${batch}:${index}`);
      await Promise.all(keys.map((key) => ours.withLock(key, { signal }, () => key)));
    }
    await clock.advance(60_000);
    expect(clock.pending).toBe(0);
    expect(backend.size).toBe(0);
    expect(getEventListeners(ours.stopping, 'abort')).toEqual([]);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });
});
