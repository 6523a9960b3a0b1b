import { describe, expect, it, vi } from 'vitest';
import { LockConfigError, LockReentryError, LockTimeoutError } from '../../../../lib/core/errors.js';
import type { LockBackend } from '../../../../lib/core/backend.js';
import { fencingTokenOf } from '../../../../lib/core/fence.js';
import { readWriteStoreKey } from '../../../../lib/core/store-key.js';
import type { AbortableLock } from '../../../../lib/core/leases/abortable-lock.js';
import { currentLock } from '../../../../lib/core/lock-context.js';
import { lockFixture, stateOf } from '../lock-fixture.js';
import { recordRequests } from '../request-log.js';

describe('several keys', () => {
  it('cost one batch to acquire and one to release, without duplicates and in one order', async () => {
    const { backend, ours } = lockFixture();
    const exchanges = recordRequests(backend);
    await ours.withLock(['b', 'a', 'b'], {}, (lock) => expect(lock.keys).toEqual(['a', 'b']));
    expect(exchanges).toEqual([
      ['acquire lock:a', 'acquire lock:b'],
      ['release lock:a', 'release lock:b'],
    ]);
  });

  it('are one lock: one event for what happens to it', async () => {
    const { clock, ours, theirs, eventNames, message } = lockFixture();
    const holder = await theirs.acquire('b');
    const waiting = ours.acquire(['a', 'b', 'c'], { label: 'transfer' });
    await clock.advance(100);
    await holder.release();
    await clock.advance(1_000);
    await (await waiting).release();
    expect(eventNames()).toEqual(['acquired', 'contended', 'released', 'acquired', 'released']);
    expect(message('released', 1)).toMatchObject({ key: 'a, b, c', template: 'transfer', instance: 'ours' });
  });

  it('let go of the outer lock if one of them is refused', async () => {
    const { ours } = lockFixture();
    await ours.acquire('shared', { mode: 'read' });
    await ours.withLock('a', {}, async (outer) => {
      const removeView = vi.spyOn(outer as unknown as AbortableLock, 'removeView');
      await expect(ours.acquire(['a', 'shared'], { reentrant: true })).rejects.toThrow(LockConfigError);
      expect(removeView).toHaveBeenCalledOnce();
    });
  });

  it('holds only the keys before the one that it waits for', async () => {
    const { clock, ours, theirs, isHeld } = lockFixture();
    const holder = await theirs.acquire('b');
    const waiting = ours.acquire(['a', 'b', 'c']);
    await clock.advance(100);
    expect([await isHeld('a'), await isHeld('c')]).toEqual([true, false]);
    await holder.release();
    await clock.advance(1_000);
    const lock = await waiting;
    expect(lock.isValid()).toBe(true);
    expect(await isHeld('c')).toBe(true);
  });

  it('does not hold the key again that was lost while it waited for a later one, but acquires it again', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    const holder = await theirs.acquire('b');
    const waiting = ours.acquire(['a', 'b'], { waitMs: 60_000 });
    await clock.advance(100);
    await backend.forceRelease('lock:a', (await backend.inspect('lock:a'))!.fencingToken);
    const thief = await theirs.acquire('a');
    await ours.confirmHeld('a');
    await holder.release();
    await clock.advance(1_000);
    expect(await stateOf(waiting)).toBe('pending');
    await thief.release();
    await clock.advance(1_000);
    const lock = await waiting;
    expect(lock.isValid()).toBe(true);
    expect(lock.fencingTokenOf('a') > thief.fencingToken).toBe(true);
  });

  it('a call for many keys is not starved by calls that each want one of them', async () => {
    const { ours, theirs, clock } = lockFixture();
    const keys = ['a', 'b', 'c', 'd'];
    const state = { isEnded: false };
    const work = () => new Promise<void>((resolve) => void clock.after(10, resolve));
    const hold = async (locks: typeof ours, key: string) => {
      while (!state.isEnded) await locks.withLock(key, { waitMs: Infinity }, work);
    };
    const others = keys.flatMap((key) => [hold(ours, key), hold(ours, key), hold(theirs, key)]);
    await clock.advance(50);
    const many = ours.withLock(keys, { waitMs: Infinity }, work);
    await clock.advance(10_000);
    expect(await stateOf(many)).toBe('fulfilled');
    state.isEnded = true;
    await clock.advance(10_000);
    await Promise.all(others);
  });

  it('waits for waitMs in all, and then holds nothing', async () => {
    const { clock, ours, theirs, isHeld, eventNames } = lockFixture();
    const first = await theirs.acquire('a');
    await theirs.acquire('b');
    const waiting = ours.acquire(['a', 'b', 'c'], { waitMs: 2_000 });
    const failure = waiting.catch((error: unknown) => error);
    await clock.advance(1_500);
    await first.release();
    await clock.advance(499);
    expect(await isHeld('a')).toBe(true);
    await clock.advance(1);
    expect(await failure).toBeInstanceOf(LockTimeoutError);
    expect(await failure).toMatchObject({ key: 'b', message: expect.stringContaining('after 2000 ms') });
    expect([await isHeld('a'), await isHeld('c')]).toEqual([false, false]);
    expect(eventNames().filter((name) => name === 'timeout')).toHaveLength(1);
  });

  it('times out if a key is asked for by another call late, and the store answers in time', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    const holder = await theirs.acquire('a');
    const failure = ours.acquire(['a', 'b'], { waitMs: 2_000 }).catch((error: unknown) => error);
    await clock.advance(1_700);
    backend.next('acquire', { delayAnswerMs: 600 }); // Of both keys: a is acquired before the end, b after it.
    const other = ours.acquire('b');
    await holder.release();
    await clock.advance(1_000);
    expect(await failure).toBeInstanceOf(LockTimeoutError);
    expect((await other).isValid()).toBe(true);
  });

  it('have a full lease each if they are not renewed, however long the wait was', async () => {
    const { backend, clock, ours, theirs, isHeld } = lockFixture();
    const holder = await theirs.acquire('b');
    const waiting = ours.acquire(['a', 'b', 'c'], { leaseMs: 1_000, renew: false });
    await clock.advance(4_950);
    expect(await isHeld('a')).toBe(true);
    await holder.release();
    while ((await stateOf(waiting)) === 'pending') await clock.advance(10);
    const lock = await waiting;
    expect(lock.remainingMs()).toBeGreaterThan(950);
    const renewals = backend.count('renew');
    await clock.advance(1_000);
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
    expect(backend.count('renew')).toBe(renewals);
  });

  it.each(['acquire', 'tryAcquire'] as const)('are not renewed after %s with renew: false', async (verb) => {
    const { backend, clock, ours } = lockFixture();
    const lock = await ours[verb](['a', 'b'], { leaseMs: 1_000, renew: false });
    await clock.advance(1_000);
    expect(lock!.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
    expect(backend.count('renew')).toBe(0);
  });

  it('leaves nothing held or queued when the signal of the caller aborts', async () => {
    const { clock, ours, theirs, isHeld } = lockFixture();
    const holder = await theirs.acquire('b');
    const controller = new AbortController();
    const failure = ours.acquire(['a', 'b'], { signal: controller.signal }).catch((error: unknown) => error);
    await clock.advance(100);
    const reason = new Error('enough');
    controller.abort(reason);
    expect(await failure).toBe(reason);
    await holder.release();
    await clock.advance(10_000);
    expect([await isHeld('a'), await isHeld('b')]).toEqual([false, false]);
  });

  it('gives back what is granted after the caller has left', async () => {
    const { backend, clock, ours, isHeld } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 500 });
    const controller = new AbortController();
    const failure = ours.acquire(['a', 'b'], { signal: controller.signal }).catch((error: unknown) => error);
    await clock.advance(100);
    controller.abort(new Error('enough'));
    expect(await failure).toMatchObject({ message: 'enough' });
    await clock.advance(1_000);
    expect([await isHeld('a'), await isHeld('b')]).toEqual([false, false]);
  });

  it('is rejected by the shutdown between two keys, and holds nothing', async () => {
    const { clock, ours, theirs, isHeld } = lockFixture();
    const holder = await theirs.acquire('b');
    const failure = ours.acquire(['a', 'b', 'c']).catch((error: unknown) => error);
    await clock.advance(100);
    ours.stopGranting();
    await holder.release();
    await clock.advance(1_000);
    expect(await failure).toMatchObject({ code: 'LOCK_SHUTDOWN' });
    expect([await isHeld('a'), await isHeld('b')]).toEqual([false, false]);
  });

  it('tryAcquire returns null if a key was lost before another was granted', async () => {
    const { ours, backend, clock, isHeld } = lockFixture();
    const execute = backend.execute.bind(backend);
    vi.spyOn(backend as LockBackend, 'execute').mockImplementation(async (requests, _timeoutMs, onResult) => {
      const result = await execute(requests);
      const [granted] = result.acquire;
      if (granted?.kind !== 'granted') return result;
      onResult?.('acquire', 0, granted);
      await backend.forceRelease('lock:a', granted.fencingToken);
      await new Promise<void>((resolve) => clock.after(190, resolve));
      return result;
    });
    const trying = ours.tryAcquire(['a', 'b'], { leaseMs: 400 });
    await clock.advance(1_000);
    expect(await trying).toBeNull();
    expect(await isHeld('b')).toBe(false);
  });

  it('tryAcquire asks once, and holds nothing if one key is taken', async () => {
    const { backend, clock, ours, theirs, isHeld } = lockFixture();
    await theirs.acquire('b');
    const before = backend.count('acquire');
    expect(await ours.tryAcquire(['a', 'b', 'c'])).toBeNull();
    expect(backend.count('acquire')).toBe(before + 1);
    await clock.advance(0);
    expect([await isHeld('a'), await isHeld('c')]).toEqual([false, false]);
    expect((await ours.tryAcquire(['a', 'c']))?.keys).toEqual(['a', 'c']);
  });

  it('fails when the store does not say whether a key is free, and gives the others back', async () => {
    const { backend, ours, eventNames } = lockFixture();
    backend.next('acquire', { refuse: true }, 2);
    await expect(ours.acquire(['a', 'b'])).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await expect(ours.tryAcquire(['a', 'b'])).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(eventNames()).not.toContain('acquired');
  });

  it('waits on while the store is only slow', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { silence: true });
    const waiting = ours.acquire(['a', 'b'], { waitMs: 60_000 });
    await clock.advance(20_000);
    expect((await waiting).isValid()).toBe(true);
  });
});

describe('the lock of several keys', () => {
  it('has a fencing token for each key and none for all', async () => {
    const { ours } = lockFixture();
    const lock = await ours.acquire(['a', 'b']);
    expect(() => lock.fencingToken).toThrow(/lock\.fencingTokenOf\(key\)/);
    expect(() => fencingTokenOf(lock)).toThrow(LockConfigError);
    expect(() => lock.fencingTokenOf('c')).toThrow(LockConfigError);
    expect(lock.fencingTokenOf('b')).toBe((await ours.inspect('b'))?.fencingToken);
    expect(JSON.parse(JSON.stringify(lock))).toEqual({
      key: 'a, b',
      fencingTokens: { a: String(lock.fencingTokenOf('a')), b: String(lock.fencingTokenOf('b')) },
      remainingMs: lock.remainingMs(),
    });
  });

  it('is lost with any of its keys, once, and gives the others back', async () => {
    const { backend, clock, ours, isHeld, eventNames } = lockFixture();
    const lock = await ours.acquire(['a', 'b']);
    await backend.forceRelease('lock:b', lock.fencingTokenOf('b'));
    await ours.confirmHeld('b');
    expect(lock.signal.aborted).toBe(true);
    expect([lock.isValid(), lock.remainingMs()]).toEqual([false, 0]);
    expect(() => lock.throwIfLost()).toThrow('Lost lock "b"');
    expect(await lock.release()).toBe(false);
    await clock.advance(0);
    expect(await isHeld('a')).toBe(false);
    expect(eventNames()).toEqual(['acquired', 'lost']);
  });

  it.each<[string, string | readonly string[], object, string]>([
    ['keys', ['a', 'b'], {}, 'lock:a'],
    ['slots of a write lock', 'a', { mode: 'write' }, readWriteStoreKey('lock', 'a', 5)],
  ])(
    'lets its other %s lapse when it is lost, although its holder does not release it',
    async (_, keys, kind, lost) => {
      const { backend, clock, ours, theirs } = lockFixture();
      const lock = await ours.acquire(keys, { ...kind, leaseMs: 1_000 });
      await backend.forceRelease(lost, (await backend.inspect(lost))!.fencingToken);
      await clock.advance(3_000);
      expect(lock.signal.aborted).toBe(true);
      expect(await theirs.tryAcquire(keys, kind)).not.toBeNull();
    },
  );

  it('fails the work whose lock was lost, and releases what is left', async () => {
    const { backend, ours, isHeld, eventNames } = lockFixture();
    const work = ours.withLock(['a', 'b'], {}, async (lock) => {
      await backend.forceRelease('lock:b', lock.fencingTokenOf('b'));
      await ours.confirmHeld('b');
      return 'done';
    });
    await expect(work).rejects.toMatchObject({ code: 'LOCK_LOST', key: 'b' });
    expect(await isHeld('a')).toBe(false);
    expect(eventNames()).toEqual(['acquired', 'lost']);
  });

  it('after a loss, the work ends only when the releases of all other keys have been sent', async () => {
    const { backend, clock, another } = lockFixture();
    const execute = backend.execute.bind(backend);
    const executeAndTell: LockBackend['execute'] = (requests, _timeoutMs, _onResult, onReleaseSent) => {
      for (const index of requests.release?.keys() ?? []) onReleaseSent?.(index);
      return execute(requests);
    };
    Object.assign(backend, { lanes: 2, execute: executeAndTell });
    const ours = another();
    const work = ours.withLock(['a', 'b'], {}, async (lock) => {
      // With lanes, the release of a key follows its renewal.
      backend.next('renew', { delayAnswerMs: 1_000 });
      void ours.confirmHeld('b');
      await clock.advance(1);
      await backend.forceRelease('lock:a', lock.fencingTokenOf('a'));
      await ours.confirmHeld('a');
    });
    const failure = work.catch((error: unknown) => error);
    await clock.advance(500);
    expect(await stateOf(failure)).toBe('pending');
    await clock.advance(1_000);
    expect(await failure).toMatchObject({ code: 'LOCK_LOST', key: 'a' });
  });

  it('reports the loss that only the release shows', async () => {
    const { backend, ours, eventNames } = lockFixture();
    const lock = await ours.acquire(['a', 'b']);
    await backend.forceRelease('lock:a', lock.fencingTokenOf('a'));
    expect(await lock.release()).toBe(false);
    expect(eventNames()).toEqual(['acquired', 'lost']);
  });

  it('extends all keys, renews them, and ends with the first lease', async () => {
    const { clock, ours } = lockFixture();
    const lock = await ours.acquire(['a', 'b'], { leaseMs: 3_000 });
    await clock.advance(10_000);
    expect(lock.isValid()).toBe(true);
    await lock.extend(60_000);
    expect(lock.remainingMs()).toBeGreaterThan(50_000);
    expect(await lock.release()).toBe(true);
    expect(await lock.release()).toBe(false);
    await expect(lock.extend(1_000)).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect(() => lock.throwIfLost()).toThrow('it was released');
  });

  it('says that the release was not confirmed', async () => {
    const { backend, ours, eventNames, message } = lockFixture();
    const lock = await ours.acquire(['a', 'b']);
    backend.next('release', { refuse: true });
    await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'a, b' });
    expect(eventNames()).toEqual(['acquired', 'unavailable']);
    expect(message('unavailable')).toMatchObject({ key: 'a, b', operation: 'release' });
  });

  it('drains at shutdown: its signal aborts, and its work is waited for', async () => {
    const { clock, ours } = lockFixture();
    let reason: unknown;
    const work = ours.withLock(['a', 'b'], {}, async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      reason = signal.reason;
    });
    const drained = ours.drain({ drainMs: 1_000, abortGraceMs: 1_000 });
    await clock.advance(1_000);
    await work;
    expect(reason).toMatchObject({ code: 'LOCK_SHUTDOWN' });
    expect(await drained).toEqual([]);
  });

  it('does not wait for the work that shuts the application down', async () => {
    const { ours } = lockFixture();
    await ours.withLock(['a', 'b'], {}, async () => {
      expect(await ours.drain({ drainMs: 60_000, abortGraceMs: 0 })).toEqual([]);
    });
  });
});

describe('re-entry with several keys', () => {
  it('is refused for each key that the context holds, in both directions', async () => {
    const { ours } = lockFixture();
    await ours.withLock(['a', 'b'], {}, async (lock) => {
      expect(currentLock()).toBe(lock);
      await expect(ours.acquire('b')).rejects.toBeInstanceOf(LockReentryError);
      await expect(ours.tryAcquire(['b', 'c'])).rejects.toBeInstanceOf(LockReentryError);
    });
    await ours.withLock('b', {}, () =>
      expect(ours.acquire(['a', 'b'])).rejects.toBeInstanceOf(LockReentryError),
    );
  });

  it('joins the keys that the context holds, and acquires and releases only the others', async () => {
    const { ours, isHeld } = lockFixture();
    await ours.withLock('b', {}, async (outer) => {
      await ours.withLock(['a', 'b'], { reentrant: true }, (lock) => {
        expect(lock.fencingTokenOf('b')).toBe(outer.fencingToken);
        expect(lock.isValid()).toBe(true);
      });
      expect([await isHeld('a'), await isHeld('b')]).toEqual([false, true]);
      expect(outer.isValid()).toBe(true);
    });
  });

  it('one key of several has its own token', async () => {
    const { ours } = lockFixture();
    await ours.withLock(['a', 'b'], {}, (outer) =>
      ours.withLock('b', { reentrant: true }, (inner) => {
        expect(inner.key).toBe('b');
        expect(inner.keys).toEqual(['b']);
        expect(inner.fencingToken).toBe(outer.fencingTokenOf('b'));
      }),
    );
  });

  it('a list of one key has the token of that key', async () => {
    const { ours } = lockFixture();
    await ours.withLock(['a', 'a'], {}, (outer) =>
      ours.withLock('a', { reentrant: true }, (inner) => {
        expect(inner.fencingToken).toBe(outer.fencingTokenOf('a'));
        expect(JSON.stringify(inner)).toContain('"a"');
      }),
    );
  });

  it.each(['lost', 'released'])(
    'its work does not begin if the outer lock was %s during the wait',
    async (how) => {
      const { clock, ours, theirs, isHeld } = lockFixture();
      const taken = await theirs.acquire('b');
      const outerCall = ours.withLock('a', { renew: false, leaseMs: 300 }, async (outer) => {
        const work = vi.fn();
        const inner = ours.withLock(['a', 'b'], { reentrant: true, waitMs: 60_000 }, work);
        inner.catch(() => undefined);
        await clock.advance(100);
        if (how === 'released') await outer.release();
        else await clock.advance(1_000);
        await taken.release();
        await clock.advance(5_000);
        await expect(inner).rejects.toMatchObject({ code: 'LOCK_LOST' });
        expect(work).not.toHaveBeenCalled();
        expect(await isHeld('b')).toBe(false);
        return 'checked';
      });
      if (how === 'lost') await expect(outerCall).rejects.toMatchObject({ code: 'LOCK_LOST' });
      else expect(await outerCall).toBe('checked');
    },
  );

  it('leaves no view of the outer lock when it is aborted', async () => {
    const { ours } = lockFixture();
    await ours.withLock('a', {}, async (outer) => {
      const removeView = vi.spyOn(outer as unknown as AbortableLock, 'removeView');
      const leaving = new AbortController();
      const call = ours.tryAcquire(['a', 'b'], { reentrant: true, signal: leaving.signal });
      leaving.abort(new Error('not needed'));
      await expect(call).rejects.toThrow('not needed');
      expect(removeView).toHaveBeenCalledTimes(1);
    });
  });

  it('is lost when the outer work releases its lock first', async () => {
    const { ours } = lockFixture();
    await ours.withLock('b', {}, async (outer) => {
      const inner = ours.withLock(['a', 'b'], { reentrant: true }, async ({ signal }) => {
        await outer.release();
        expect(signal.aborted).toBe(true);
      });
      await expect(inner).rejects.toMatchObject({ code: 'LOCK_LOST' });
    });
  });
});

it.each([[[]], [Array.from({ length: 33 }, (_, index) => `${index}`)], [['a', '']], [['a', 1]]])(
  'refuses the keys %j',
  async (keys) => {
    const { ours } = lockFixture();
    await expect(ours.acquire(keys as string[])).rejects.toBeInstanceOf(LockConfigError);
  },
);
