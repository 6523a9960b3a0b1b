import { describe, expect, it, vi } from 'vitest';
import { LockConfigError, LockReentryError, LockTimeoutError } from '../../../../lib/core/errors.js';
import { currentLock } from '../../../../lib/core/lock-context.js';
import type { Lock } from '../../../../lib/core/lock.js';
import { Events } from '../../../../lib/core/events.js';
import { KindRegistry } from '../../../../lib/core/kinds/kind-registry.js';
import { permitStoreKey } from '../../../../lib/core/store-key.js';
import { lockFixture, stateOf } from '../lock-fixture.js';
import { Gate } from '../../../support/gate.js';
import { until } from '../../../support/until.js';
import { recordRequests } from '../request-log.js';

const THREE = { permits: 3 };
const slot = (permit: number, key = 'pdf') => permitStoreKey('lock', key, permit);

/** Holds all permits of a key. */
async function exhaust(
  locks: ReturnType<typeof lockFixture>['ours'],
  options: { readonly permits: number; readonly leaseMs?: number },
) {
  const held: Lock[] = [];
  for (let count = 0; count < options.permits; count += 1) held.push(await locks.acquire('pdf', options));
  return held;
}

describe('permits', () => {
  it('are granted to that many holders, each with a number of its own', async () => {
    const { ours, theirs } = lockFixture();
    const held = [...(await exhaust(ours, { permits: 2 })), await theirs.acquire('pdf', THREE)];
    expect(held.map(({ permit }) => permit).sort()).toEqual([0, 1, 2]);
    expect(await theirs.tryAcquire('pdf', THREE)).toBeNull();
    expect(await ours.tryAcquire('pdf', THREE)).toBeNull();
    await held[1]!.release();
    expect((await theirs.tryAcquire('pdf', THREE))?.permit).toBe(held[1]!.permit);
  });

  it('cost one request if the first one is free', async () => {
    const { backend, ours } = lockFixture();
    const exchanges = recordRequests(backend);
    await ours.withLock('pdf', THREE, ({ permit }) =>
      expect(exchanges).toEqual([[`acquire ${slot(permit)}`]]),
    );
    expect(exchanges).toHaveLength(2);
  });

  it.each([
    ['tryAcquire', {}],
    ['a call with a waitMs of 0', { waitMs: 0 }],
  ])('%s gets one for each caller while there are enough, however many ask at once', async (_, options) => {
    const { ours, theirs, another } = lockFixture();
    const others = another();
    const random = vi.spyOn(Math, 'random').mockReturnValue(0); // All ask for the same one first.
    await others.acquire('pdf', { permits: 4 });
    const calls = [ours, theirs, others].map((locks) =>
      'waitMs' in options
        ? locks.acquire('pdf', { permits: 4, ...options })
        : locks.tryAcquire('pdf', { permits: 4 }),
    );
    const granted = await Promise.all(calls);
    random.mockRestore();
    expect(granted.map((lock) => lock?.permit).sort()).toEqual([1, 2, 3]);
    expect((await ours.inspect('pdf'))?.holders).toHaveLength(4);
  });

  it('a call that does not wait ends within a second if the store is slow', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    await exhaust(theirs, THREE);
    const execute = backend.execute.bind(backend);
    vi.spyOn(backend, 'execute').mockImplementation((requests) => {
      backend.next('acquire', { delayAnswerMs: 700 });
      return execute(requests);
    });
    vi.spyOn(backend, 'inspect').mockImplementation(() => new Promise(() => undefined));
    const failure = ours.tryAcquire('pdf', THREE).catch((error: unknown) => error);
    await clock.advance(1_000);
    expect(await stateOf(failure)).toBe('fulfilled');
    expect(await failure).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  });

  it('tryAcquire rejects with the reason of a signal that aborts while it reads which are free', async () => {
    const { ours, theirs, backend } = lockFixture();
    await exhaust(theirs, THREE);
    const controller = new AbortController();
    const reason = new Error('the caller has left');
    vi.spyOn(backend, 'inspect').mockImplementation(() => {
      controller.abort(reason);
      return new Promise(() => undefined);
    });
    await expect(ours.tryAcquire('pdf', { ...THREE, signal: controller.signal })).rejects.toBe(reason);
  });

  it.each([0, 1, 7])(
    'a burst of calls that do not wait gets the %i free permits, with few requests',
    async (free) => {
      const { backend, ours, theirs } = lockFixture();
      const held = await exhaust(theirs, { permits: 10 });
      for (const lock of held.slice(0, free)) await lock.release();
      const inspect = vi.spyOn(backend, 'inspect');
      const calls = Array.from({ length: 300 }, () => ours.tryAcquire('pdf', { permits: 10 }));
      const granted = (await Promise.all(calls)).filter((lock) => lock !== null);
      expect(granted).toHaveLength(free);
      // Each of two readings reads each permit.
      expect(inspect.mock.calls.length).toBeLessThanOrEqual(20);
    },
  );

  it('a call that does not wait reads none that this process has', async () => {
    const { backend, ours, theirs } = lockFixture();
    const other = await theirs.acquire('pdf', THREE);
    for (let count = 0; count < 2; count += 1) await ours.acquire('pdf', THREE);
    const inspect = vi.spyOn(backend, 'inspect');
    expect(await ours.tryAcquire('pdf', THREE)).toBeNull();
    expect(inspect.mock.calls.map(([key]) => key)).toEqual([slot(other.permit)]);
  });

  it('a call that does not wait uses no reading that began before it', async () => {
    const { backend, ours, theirs } = lockFixture();
    const held = await exhaust(theirs, THREE);
    const random = vi.spyOn(Math, 'random').mockReturnValue(0); // All ask for the first one first.
    const gate = new Gate();
    const inspect = backend.inspect.bind(backend);
    vi.spyOn(backend, 'inspect').mockImplementation(async (key) => {
      const record = await inspect(key);
      await gate.passed;
      return record;
    });
    const early = ours.tryAcquire('pdf', THREE);
    await until(() => vi.mocked(backend.inspect).mock.calls.length === 3);
    await held.find(({ permit }) => permit === 2)!.release();
    const late = ours.tryAcquire('pdf', THREE);
    gate.open();
    expect(await early).toBeNull();
    expect((await late)?.permit).toBe(2);
    random.mockRestore();
  });

  it('tryAcquire gets another one when the first is taken, and keeps no more than that', async () => {
    const { clock, ours, theirs } = lockFixture();
    for (let turn = 0; turn < 20; turn += 1) {
      const taken = await theirs.acquire('pdf', THREE);
      const lock = await ours.tryAcquire('pdf', THREE);
      expect(lock?.permit).not.toBe(taken.permit);
      await clock.advance(0);
      expect((await ours.inspect('pdf'))?.holders).toHaveLength(2);
      await Promise.all([taken.release(), lock?.release()]);
    }
  });

  it('waits in all queues, and holds only the permit that is free first', async () => {
    const { clock, ours, theirs, eventNames } = lockFixture();
    const held = await exhaust(theirs, THREE);
    const waiting = ours.acquire('pdf', THREE);
    await clock.advance(100);
    expect(await stateOf(waiting)).toBe('pending');
    await Promise.all(held.map((lock) => lock.release()));
    await clock.advance(1_000);
    const lock = await waiting;
    const info = await ours.inspect('pdf');
    expect(info?.holders?.map(({ permit }) => permit)).toEqual([lock.permit]);
    await lock.release();
    expect(await ours.inspect('pdf')).toBeNull();
    expect(eventNames().filter((name) => name !== 'renewed')).toEqual([
      ...['acquired', 'acquired', 'acquired', 'contended'],
      ...['released', 'released', 'released', 'acquired', 'released'],
    ]);
  });

  it('are first come, first served within a process', async () => {
    const { clock, ours } = lockFixture();
    const held = await exhaust(ours, THREE);
    const order: number[] = [];
    const waiting = Array.from({ length: 9 }, async (_, index) => {
      const lock = await ours.acquire('pdf', THREE);
      order.push(index);
      await lock.release();
    });
    await clock.advance(10);
    await Promise.all(held.map((lock) => lock.release()));
    await clock.advance(5_000);
    await Promise.all(waiting);
    expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('a call that wants many does not starve among calls that come later', async () => {
    const { clock, ours, theirs } = lockFixture();
    const held = await exhaust(theirs, THREE);
    const early = ours.acquire('pdf', { ...THREE, waitMs: 60_000 });
    await clock.advance(10);
    const late = Array.from({ length: 50 }, () => ours.withLock('pdf', THREE, () => undefined));
    await held[0]!.release();
    await clock.advance(5_000);
    expect(await stateOf(early)).toBe('fulfilled');
    await (await early).release();
    await clock.advance(5_000);
    await Promise.all(late);
  });

  it('times out once for all queues, and leaves nothing held or queued', async () => {
    const { clock, ours, theirs, eventNames, message } = lockFixture();
    const held = await exhaust(theirs, THREE);
    const failure = ours.acquire('pdf', { ...THREE, waitMs: 2_000 }).catch((error: unknown) => error);
    await clock.advance(2_000);
    expect(await failure).toBeInstanceOf(LockTimeoutError);
    expect(await failure).toMatchObject({ key: 'pdf' });
    expect(eventNames().filter((name) => name === 'timeout')).toHaveLength(1);
    expect(message('timeout')).toMatchObject({ key: 'pdf', waitedMs: 2_000 });
    await Promise.all(held.map((lock) => lock.release()));
    await clock.advance(10_000);
    expect(await ours.inspect('pdf')).toBeNull();
  });

  it('asks for one, looks at the others and gives up if it does not wait', async () => {
    const { clock, ours, theirs, backend } = lockFixture();
    await exhaust(theirs, THREE);
    const requests = recordRequests(backend);
    const call = ours.acquire('pdf', { ...THREE, waitMs: 0 });
    call.catch(() => undefined);
    await clock.advance(10);
    expect(requests).toEqual([[expect.stringMatching(/^acquire /)]]);
    await expect(call).rejects.toBeInstanceOf(LockTimeoutError);
  });

  it.each([
    ['the store is slow at first', { fault: { delayAnswerMs: 700 }, after: 0 }],
    ['the connection is lost when it joins the other queues', { fault: { loseAnswer: true }, after: 1 }],
  ] as const)('waits in all queues, also if %s', async (_, { fault, after }) => {
    const { clock, ours, theirs, backend } = lockFixture();
    const held = await exhaust(theirs, { ...THREE, leaseMs: 600_000 });
    const execute = backend.execute.bind(backend);
    let acquisitions = 0;
    vi.spyOn(backend, 'execute').mockImplementation((requests) => {
      if (requests.acquire && (acquisitions += 1) === after + 1) backend.next('acquire', fault);
      return execute(requests);
    });
    const random = vi.spyOn(Math, 'random').mockReturnValue(0);
    const waiting = ours.acquire('pdf', { ...THREE, leaseMs: 1_000, waitMs: 60_000 });
    await clock.advance(3_000);
    random.mockRestore();
    await held.find(({ permit }) => permit === 2)!.release();
    await clock.advance(5_000);
    expect((await waiting).permit).toBe(2);
  });

  it('gives back what is granted after the caller has left', async () => {
    const { backend, clock, ours } = lockFixture();
    backend.next('acquire', { delayAnswerMs: 500 });
    const controller = new AbortController();
    const failure = ours
      .acquire('pdf', { ...THREE, signal: controller.signal })
      .catch((error: unknown) => error);
    await clock.advance(100);
    controller.abort(new Error('enough'));
    expect(await failure).toMatchObject({ message: 'enough' });
    await clock.advance(1_000);
    expect(await ours.inspect('pdf')).toBeNull();
  });

  it('the permit of a crashed holder comes back with the end of its lease', async () => {
    const { backend, clock, ours } = lockFixture();
    const dead = { holder: 'dead', leaseMs: 5_000, instance: 'dead' };
    await backend.execute({ acquire: [0, 1, 2].map((permit) => ({ key: slot(permit), ...dead })) });
    const waiting = ours.acquire('pdf', { ...THREE, waitMs: 60_000 });
    await clock.advance(4_999);
    expect(await stateOf(waiting)).toBe('pending');
    await clock.advance(250);
    expect(await stateOf(waiting)).toBe('fulfilled');
  });

  it('rejects when the store cannot be reached, and when the application ends', async () => {
    const { backend, clock, ours, theirs } = lockFixture();
    backend.next('acquire', { refuse: true });
    await expect(ours.acquire('pdf', THREE)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    backend.next('acquire', { refuse: true });
    await expect(ours.tryAcquire('pdf', THREE)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await exhaust(theirs, THREE);
    const failure = ours.acquire('pdf', THREE).catch((error: unknown) => error);
    await clock.advance(100);
    ours.stopGranting();
    await clock.advance(100);
    expect(await failure).toMatchObject({ code: 'LOCK_SHUTDOWN' });
  });
});

describe('the lock of a permit', () => {
  it('is renewed, lost and released as any lock', async () => {
    const { backend, clock, ours, eventNames } = lockFixture();
    const lock = await ours.acquire('pdf', { permits: 3, leaseMs: 3_000 });
    await clock.advance(1_500);
    expect(eventNames()).toEqual(['acquired', 'renewed']);
    expect(lock.fencingTokenOf('pdf')).toBe(lock.fencingToken);
    await backend.forceRelease(slot(lock.permit), lock.fencingToken);
    await ours.confirmHeld('pdf');
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', key: 'pdf' });
    expect(await lock.release()).toBe(false);
    expect(eventNames()).toEqual(['acquired', 'renewed', 'lost']);
  });

  it('says once that its release was not confirmed', async () => {
    const { backend, ours, eventNames, message } = lockFixture();
    const lock = await ours.acquire('pdf', THREE);
    backend.next('release', { refuse: true });
    await expect(lock.release()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'pdf' });
    expect(eventNames()).toEqual(['acquired', 'unavailable']);
    expect(message('unavailable')).toMatchObject({ key: 'pdf', permit: lock.permit, operation: 'release' });
  });

  it('publishes its renewals, also if it was not asked for first', async () => {
    const { clock, ours, theirs, eventNames } = lockFixture();
    const held = await exhaust(theirs, { ...THREE, leaseMs: 600_000 });
    const random = vi.spyOn(Math, 'random').mockReturnValue(0);
    const waiting = ours.acquire('pdf', { ...THREE, leaseMs: 3_000 });
    await clock.advance(10);
    await held.find(({ permit }) => permit === 2)!.release();
    await clock.advance(100);
    expect((await waiting).permit).toBe(2);
    random.mockRestore();
    await clock.advance(1_500);
    expect(eventNames()).toContain('renewed');
  });

  it('has its number in its events, because two permits may have the same fencing token', async () => {
    const { backend, clock, ours, message } = lockFixture();
    const [one, two] = [await ours.acquire('pdf', THREE), await ours.tryAcquire('pdf', THREE)];
    expect([0, 1].map((index) => message('acquired', index)?.permit)).toEqual([one.permit, two!.permit]);
    backend.next('renew', { refuse: true });
    await clock.advance(15_000);
    expect(message('renewal-failed')).toHaveProperty('permit');
    expect(message('renewed')).toHaveProperty('permit');
    await two!.release();
    await clock.advance(100);
    expect(message('released')?.permit).toBe(two!.permit);
    await backend.forceRelease(slot(one.permit), one.fencingToken);
    await ours.confirmHeld('pdf');
    expect(message('lost')?.permit).toBe(one.permit);
    await ours.withLock('plain', {}, () => undefined);
    expect(message('acquired', 2)).not.toHaveProperty('permit');
  });

  it('has a fencing token that grows for its number', async () => {
    const { ours } = lockFixture();
    const newest = new Map<number, bigint>();
    for (let turn = 0; turn < 20; turn += 1) {
      await ours.withLock('pdf', THREE, ({ permit, fencingToken }) => {
        expect(fencingToken > (newest.get(permit) ?? 0n)).toBe(true);
        newest.set(permit, fencingToken);
      });
    }
  });

  it('is not acquired again by the same context, unless it re-enters', async () => {
    const { ours } = lockFixture();
    await ours.withLock('pdf', THREE, async (outer) => {
      expect(currentLock()).toBe(outer);
      await expect(ours.acquire('pdf', THREE)).rejects.toBeInstanceOf(LockReentryError);
      await ours.withLock('pdf', { ...THREE, reentrant: true }, (inner) => {
        expect(inner.permit).toBe(outer.permit);
        expect(inner.fencingToken).toBe(outer.fencingToken);
      });
      expect(outer.isValid()).toBe(true);
    });
  });

  it('is inspected, listed and released by force', async () => {
    const { ours, theirs } = lockFixture();
    await ours.acquire('other');
    const lock = await ours.acquire('a}1', THREE);
    const info = await theirs.inspect('a}1');
    expect(info).toMatchObject({ key: 'a}1', permit: lock.permit, fencingToken: lock.fencingToken });
    const { locks, cursor } = await theirs.list({});
    expect(locks.map(({ key, permit }) => [key, permit])).toEqual([
      ['other', undefined],
      ['a}1', lock.permit],
    ]);
    expect(cursor).toBeUndefined();
    expect((await theirs.list({ prefix: 'a' })).locks).toHaveLength(1);
    for (const token of [lock.fencingToken - 1n, lock.fencingToken + 64n])
      expect(await theirs.forceRelease('a}1', token)).toBe(false);
    expect(await theirs.forceRelease('a}1', lock.fencingToken, (lock.permit + 1) % 3)).toBe(false);
    expect(await theirs.forceRelease('a}1', lock.fencingToken)).toBe(true);
    expect(await theirs.inspect('a}1')).toBeNull();
  });

  it('is released by force with the token of its present caller, also if the store knows only the first one', async () => {
    const { ours, theirs } = lockFixture();
    const one = { permits: 1 };
    const first = await ours.acquire('pdf', one);
    const second = ours.acquire('pdf', one);
    await first.release();
    const { fencingToken } = await second;
    expect((await theirs.inspect('pdf'))?.fencingToken).toBe(first.fencingToken);
    expect(fencingToken).toBeGreaterThan(first.fencingToken);
    expect(await ours.forceRelease('pdf', first.fencingToken, 0)).toBe(false);
    for (const other of [first.fencingToken - 1n, fencingToken + 100n])
      expect(await theirs.forceRelease('pdf', other, 0)).toBe(false);
    expect(await theirs.forceRelease('pdf', fencingToken, 0)).toBe(true);
    expect(await theirs.inspect('pdf')).toBeNull();
  });

  it('is listed page by page after the locks without permits', async () => {
    const { ours } = lockFixture();
    for (const key of ['a', 'b']) await ours.acquire(key);
    for (const key of ['c', 'd', 'e']) await ours.acquire(key, THREE);
    const keys: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await ours.list({ limit: 2, ...(cursor !== undefined && { cursor }) });
      expect(page.locks.length).toBeLessThanOrEqual(2);
      keys.push(...page.locks.map(({ key }) => key));
      cursor = page.cursor;
    } while (cursor !== undefined);
    expect(keys.sort()).toEqual(['a', 'b', 'c', 'd', 'e']);
  });
});

describe('one key with permits and without', () => {
  it('is refused in both orders', async () => {
    const { ours } = lockFixture();
    await ours.withLock('one', {}, () => undefined);
    await expect(ours.acquire('one', THREE)).rejects.toBeInstanceOf(LockConfigError);
    await ours.withLock('two', THREE, () => undefined);
    await expect(ours.acquire('two')).rejects.toBeInstanceOf(LockConfigError);
    await expect(ours.acquire(['two', 'three'])).rejects.toBeInstanceOf(LockConfigError);
  });

  it('a call that is refused changes nothing', async () => {
    const { ours } = lockFixture();
    const lock = await ours.acquire('two', THREE);
    await expect(ours.acquire('two')).rejects.toBeInstanceOf(LockConfigError);
    expect(await ours.inspect('two')).toMatchObject({ permit: lock.permit });
  });

  it('is remembered in bounded memory', () => {
    const registry = new KindRegistry(new Events({ namespace: '', instance: '', backend: '', module: '' }));
    registry.onPlain('first');
    for (let index = 0; index < 256; index += 1) registry.onPlain(`plain:${index}`);
    expect(registry.isPlain('first')).toBe(false);
    for (let index = 0; index < 1_025; index += 1) registry.onPermits(`permits:${index}`, 2);
    expect(() => registry.onPlain('permits:0')).not.toThrow();
    expect(() => registry.onPlain('permits:1')).toThrow(LockConfigError);
  });

  it('different permits for one key are told once', async () => {
    const messages: object[] = [];
    const source = { namespace: '', instance: '', backend: '', module: '' };
    const registry = new KindRegistry(
      new Events(source, { 'permits-differ': (message) => messages.push(message) }),
    );
    for (const permits of [3, 3, 5, 2]) registry.onPermits('pdf', permits);
    expect(messages).toEqual([expect.objectContaining({ key: 'pdf', permits: 5, otherPermits: 3 })]);
  });
});

it.each([0, 65, 1.5, '3', null])('refuses %j permits', async (permits) => {
  const { ours } = lockFixture();
  await expect(ours.acquire('pdf', { permits: permits as number })).rejects.toBeInstanceOf(LockConfigError);
});

it('refuses permits of several keys', async () => {
  const { ours } = lockFixture();
  await expect(ours.acquire(['a', 'b'], THREE)).rejects.toBeInstanceOf(LockConfigError);
});
