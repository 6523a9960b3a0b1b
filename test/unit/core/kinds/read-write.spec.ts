import { describe, expect, it, vi } from 'vitest';
import type { LockBackend } from '../../../../lib/core/backend.js';
import { fencingTokenOf } from '../../../../lib/core/fence.js';
import {
  LockConfigError,
  LockLostError,
  LockReentryError,
  LockTimeoutError,
} from '../../../../lib/core/errors.js';
import { readWriteStoreKey } from '../../../../lib/core/store-key.js';
import type { Lock } from '../../../../lib/core/lock.js';
import { lockFixture, stateOf } from '../lock-fixture.js';
import { orderFixture } from '../lock-order-fixture.js';
import { recordRequests } from '../request-log.js';

const READ = { mode: 'read', waitMs: 600_000 } as const;
const WRITE = { mode: 'write', waitMs: 600_000 } as const;
const slot = (index: number, key = 'catalog') => readWriteStoreKey('lock', key, index);

type Fixture = ReturnType<typeof lockFixture>;

/** Fails unless the store has none of the slots. */
async function expectFree({ backend }: Fixture) {
  for (let index = 0; index <= 16; index += 1) expect(await backend.inspect(slot(index))).toBeNull();
}

/** The processes that have a slot. */
async function instancesOf({ backend }: Fixture): Promise<string[]> {
  const records = await Promise.all(Array.from({ length: 17 }, (_, index) => backend.inspect(slot(index))));
  return records.flatMap((record) => record?.instance ?? []);
}

const recordOf = (failure: Promise<unknown>) => failure.catch((error: unknown) => error);

describe('readers', () => {
  it('that followed another one which left have their own time to ask the store', async () => {
    const { ours, backend, clock } = lockFixture();
    const leaving = new AbortController();
    backend.next('inspect', { delayAnswerMs: 900 });
    backend.next('acquire', { delayAnswerMs: 900 });
    const first = recordOf(ours.tryAcquire('catalog', { mode: 'read', signal: leaving.signal }));
    const second = ours.tryAcquire('catalog', { mode: 'read' });
    await clock.advance(1_200);
    leaving.abort(new Error('left'));
    await clock.advance(1_000);
    expect(await first).toMatchObject({ message: 'left' });
    expect((await second)?.isValid()).toBe(true);
  });

  it('of any number of processes read at the same time, and keep writers out', async () => {
    const fixture = lockFixture();
    const { ours, theirs, clock } = fixture;
    const held = [await ours.acquire('catalog', READ), await theirs.acquire('catalog', READ)];
    expect(await ours.tryAcquire('catalog', { mode: 'write' })).toBeNull();
    expect(await theirs.tryAcquire('catalog', { mode: 'read' })).not.toBeNull();
    const writing = ours.acquire('catalog', WRITE);
    await clock.advance(1_000);
    expect(await stateOf(writing)).toBe('pending');
    await held[0]!.release();
    await clock.advance(1_000);
    expect(await stateOf(writing)).toBe('pending');
  });

  it('of one process share one grant, which the last one out releases', async () => {
    const fixture = lockFixture();
    const { ours, backend } = fixture;
    const exchanges = recordRequests(backend);
    const held = await Promise.all(Array.from({ length: 40 }, () => ours.acquire('catalog', READ)));
    expect(exchanges.flat().filter((each) => each.startsWith('acquire'))).toHaveLength(1);
    const last = held.pop()!;
    for (const lock of held) expect(await lock.release()).toBe(true);
    expect(last.isValid()).toBe(true);
    expect(exchanges).toHaveLength(1);
    expect(await last.release()).toBe(true);
    await expectFree(fixture);
  });

  it('each lose the lock when the shared grant is lost', async () => {
    const { ours, backend, eventNames } = lockFixture();
    const held = [await ours.acquire('catalog', READ), await ours.acquire('catalog', READ)];
    for (let index = 1; index <= 16; index += 1) {
      const record = await backend.inspect(slot(index));
      if (record) await backend.forceRelease(slot(index), record.fencingToken);
    }
    await ours.confirmHeld('catalog');
    for (const lock of held) expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
    expect(eventNames()).toEqual(['acquired', 'acquired', 'lost', 'lost']);
    expect(await held[0]!.release()).toBe(false);
  });

  it('the grant that is lost is not joined', async () => {
    const { ours, backend, clock } = lockFixture();
    const lost = await ours.acquire('catalog', { ...READ, leaseMs: 1_000 });
    backend.next('renew', { refuse: true }, Infinity);
    await clock.advance(1_001);
    const next = await ours.acquire('catalog', { ...READ, leaseMs: 1_000 });
    expect([lost.isValid(), next.isValid()]).toEqual([false, true]);
  });

  it('with another lease, or one that is not renewed, have a grant of their own', async () => {
    const { ours } = lockFixture();
    await ours.acquire('catalog', READ);
    await ours.acquire('catalog', { ...READ, leaseMs: 5_000 });
    await ours.acquire('catalog', { ...READ, renew: false });
    await ours.acquire('catalog', { ...READ, renew: false });
    expect((await ours.inspect('catalog'))?.holders).toHaveLength(4);
  });

  it('more processes than slots wait, and read when one is free', async () => {
    const { another, clock } = lockFixture();
    const held: Lock[] = [];
    for (let count = 0; count < 16; count += 1) held.push(await another().acquire('catalog', READ));
    expect(await another().tryAcquire('catalog', { mode: 'read' })).toBeNull();
    const waiting = another().acquire('catalog', READ);
    await clock.advance(1_000);
    expect(await stateOf(waiting)).toBe('pending');
    await held[3]!.release();
    await clock.advance(1_000);
    expect(await stateOf(waiting)).toBe('fulfilled');
  });

  it('the 17th process keeps newer readers out while it waits, also if it does not renew its lease', async () => {
    const { another, clock } = lockFixture();
    const readers = Array.from({ length: 16 }, () => another());
    for (const reader of readers) await reader.acquire('catalog', READ);
    const waiting = another().acquire('catalog', { ...READ, renew: false, leaseMs: 1_000 });
    await clock.advance(5_000);
    expect(await stateOf(waiting)).toBe('pending');
    expect(await readers[0]!.tryAcquire('catalog', { mode: 'read' })).toBeNull();
  });

  it('that leave while the store is asked for all leave it to the others, and nothing held', async () => {
    const fixture = lockFixture();
    const { ours, backend, clock } = fixture;
    backend.next('acquire', { delayAnswerMs: 500 });
    const controller = new AbortController();
    const first = recordOf(ours.acquire('catalog', { ...READ, signal: controller.signal }));
    const second = ours.acquire('catalog', READ);
    await clock.advance(100);
    controller.abort(new Error('enough'));
    expect(await first).toMatchObject({ message: 'enough' });
    await clock.advance(2_000);
    await (await second).release();
    await clock.advance(2_000);
    await expectFree(fixture);
  });
});

describe('a writer', () => {
  it('excludes readers and writers, in its process and in others', async () => {
    const { ours, theirs } = lockFixture();
    await ours.acquire('catalog', WRITE);
    for (const locks of [ours, theirs])
      for (const mode of ['read', 'write'] as const)
        expect(await locks.tryAcquire('catalog', { mode })).toBeNull();
  });

  it('asks for all slots in one batch, and releases all in one', async () => {
    const { ours, backend } = lockFixture();
    const exchanges = recordRequests(backend);
    await ours.withLock('catalog', WRITE, () => undefined);
    expect(exchanges.map((batch) => batch.length)).toEqual([17, 17]);
  });

  it('holds no slot while it waits for its turn', async () => {
    const fixture = lockFixture();
    const { ours, backend, clock } = fixture;
    const turn = { key: slot(0), holder: 'holder', leaseMs: 20_000, instance: 'theirs' };
    await backend.execute({ acquire: [turn], renew: [], release: [] });
    const writing = ours.acquire('catalog', WRITE);
    await clock.advance(10);
    expect(await instancesOf(fixture)).toEqual(['theirs']);
    await clock.advance(25_000);
    await (await writing).release();
    await expectFree(fixture);
  });

  it('sends nothing while it waits behind another one of its process', async () => {
    const { ours, backend, clock } = lockFixture();
    const exchanges = recordRequests(backend);
    const first = await ours.acquire('catalog', WRITE);
    const second = ours.acquire('catalog', WRITE);
    await clock.advance(10);
    expect(exchanges.map((batch) => batch.length)).toEqual([17]);
    await first.release();
    await (await second).release();
  });

  it('has a fencing token that grows from writer to writer', async () => {
    const { ours, theirs } = lockFixture();
    let newest = 0n;
    for (const locks of [ours, theirs, ours, ours, theirs])
      await locks.withLock('catalog', WRITE, ({ fencingToken }) => {
        expect(fencingToken > newest).toBe(true);
        newest = fencingToken;
      });
  });

  it('of this process keeps new readers of this process out at once', async () => {
    const { ours, theirs, clock } = lockFixture();
    const reading = [await ours.acquire('catalog', READ), await theirs.acquire('catalog', READ)];
    const writing = ours.acquire('catalog', WRITE);
    expect(await ours.tryAcquire('catalog', { mode: 'read' })).toBeNull();
    const late = ours.acquire('catalog', READ);
    await Promise.all(reading.map((lock) => lock.release()));
    await clock.advance(1_000);
    expect([await stateOf(writing), await stateOf(late)]).toEqual(['fulfilled', 'pending']);
    await (await writing).release();
    await clock.advance(1_000);
    expect(await stateOf(late)).toBe('fulfilled');
  });

  it('of another process keeps new readers out after 100 ms', async () => {
    const { ours, theirs, clock } = lockFixture();
    await ours.acquire('catalog', READ);
    const writing = theirs.acquire('catalog', WRITE);
    await clock.advance(99);
    expect(await ours.tryAcquire('catalog', { mode: 'read' })).not.toBeNull();
    await clock.advance(1);
    expect(await ours.tryAcquire('catalog', { mode: 'read' })).toBeNull();
    expect(await stateOf(writing)).toBe('pending');
  });

  it('is not starved by readers of its own and other processes that overlap all the time', async () => {
    const { ours, theirs, clock } = lockFixture();
    const state = { isEnded: false };
    const read = async (locks: typeof ours) => {
      while (!state.isEnded)
        await locks.withLock(
          'catalog',
          READ,
          () => new Promise<void>((resolve) => void clock.after(30, resolve)),
        );
    };
    const readers = [read(ours), read(theirs)];
    await clock.advance(10);
    readers.push(read(ours), read(theirs));
    await clock.advance(1_000);
    const writing = theirs.acquire('catalog', WRITE);
    await clock.advance(2_000);
    expect(await stateOf(writing)).toBe('fulfilled');
    state.isEnded = true;
    await (await writing).release();
    await clock.advance(5_000);
    await Promise.all(readers);
  });

  it('readers are not starved by writers that follow each other all the time', async () => {
    const { ours, theirs, clock } = lockFixture();
    const state = { isEnded: false };
    const write = async (locks: typeof ours) => {
      while (!state.isEnded)
        await locks.withLock(
          'catalog',
          WRITE,
          () => new Promise<void>((resolve) => void clock.after(10, resolve)),
        );
    };
    const writers = [write(ours), write(ours), write(ours), write(theirs), write(theirs)];
    await clock.advance(100);
    const reading = [ours, theirs].map((locks) => locks.withLock('catalog', READ, () => undefined));
    await clock.advance(20_000);
    expect(await Promise.all(reading.map(stateOf))).toEqual(['fulfilled', 'fulfilled']);
    state.isEnded = true;
    await clock.advance(20_000);
    await Promise.all(writers);
  });

  it('that loses its turn while it waits for readers releases what it has, and begins again', async () => {
    const fixture = lockFixture();
    const { ours, theirs, backend, clock } = fixture;
    const reading = await theirs.acquire('catalog', READ);
    const first = ours.acquire('catalog', WRITE);
    await clock.advance(10);
    const turn = await backend.inspect(slot(0));
    await backend.forceRelease(slot(0), turn!.fencingToken);
    const second = theirs.acquire('catalog', WRITE);
    // The first one notices it when it renews its turn, after at most 13 s.
    await clock.advance(15_000);
    expect([await stateOf(first), await stateOf(second)]).toEqual(['pending', 'pending']);
    // The second has all of them, but for that of the reader.
    expect(new Set(await instancesOf(fixture))).toEqual(new Set(['theirs']));
    await reading.release();
    await clock.advance(2_000);
    const winner = await Promise.race([first, second]);
    await winner.release();
    await clock.advance(2_000);
    await Promise.all([(await first).release(), (await second).release()]);
    await clock.advance(1_000);
    await expectFree(fixture);
  });

  it.each([
    ['with a reader', true],
    ['without a reader', false],
  ])(
    'that loses its turn before the store has replied for all slots releases what it has, and begins again: %s',
    async (_, hasReader) => {
      const fixture = lockFixture();
      const { ours, theirs, another, backend, clock } = fixture;
      const reading = hasReader ? await another().acquire('catalog', READ) : undefined;
      const execute = backend.execute.bind(backend);
      const delayed = vi
        .spyOn(backend as LockBackend, 'execute')
        .mockImplementation(async (requests, _timeoutMs, onResult) => {
          const result = await execute(requests);
          if (result.acquire.length < 17) return result;
          for (const [index, each] of result.acquire.slice(0, -1).entries())
            onResult?.('acquire', index, each);
          await new Promise<void>((resolve) => clock.after(900, resolve));
          return result;
        });
      const first = ours.acquire('catalog', WRITE);
      await clock.advance(10);
      delayed.mockRestore();
      const turn = await backend.inspect(slot(0));
      await backend.forceRelease(slot(0), turn!.fencingToken);
      await ours.confirmHeld('catalog');
      const second = theirs.acquire('catalog', WRITE);
      await clock.advance(100);
      // The second one gets this slot, and waits for the others.
      await reading?.release();
      await clock.advance(5_000);
      expect([await stateOf(first), await stateOf(second)]).toEqual(['pending', 'fulfilled']);
      await (await second).release();
      await clock.advance(5_000);
      await (await first).release();
      await clock.advance(1_000);
      await expectFree(fixture);
    },
  );

  it('that does not wait leaves nothing held', async () => {
    const fixture = lockFixture();
    const { ours, theirs, clock } = fixture;
    const reading = await theirs.acquire('catalog', READ);
    expect(await ours.tryAcquire('catalog', { mode: 'write' })).toBeNull();
    await clock.advance(0);
    expect(await instancesOf(fixture)).toEqual(['theirs']);
    await reading.release();
    await expectFree(fixture);
  });

  it('does not sleep: it gets the key at once when the last reader of another process releases it', async () => {
    const { ours, theirs, clock } = lockFixture();
    const reading = await theirs.acquire('catalog', READ);
    const writing = ours.acquire('catalog', WRITE);
    await clock.advance(40_000);
    await reading.release();
    await clock.advance(0);
    expect(await stateOf(writing)).toBe('fulfilled');
  });

  it('that has waited for its turn keeps waiting while the store is away', async () => {
    const { ours, theirs, backend, clock } = lockFixture();
    const held = await theirs.acquire('catalog', WRITE);
    const writing = ours.acquire('catalog', WRITE);
    await clock.advance(100);
    // Slot 0 is granted, and the request for the others fails.
    backend.next('acquire', { delayAnswerMs: 1 });
    backend.next('acquire', { refuse: true });
    await held.release();
    await clock.advance(10_000);
    expect((await writing).isValid()).toBe(true);
  });

  it('without renewal has its turn and then its whole lease, however long it waited for readers', async () => {
    const { ours, theirs, backend, clock } = lockFixture();
    const reading = await theirs.acquire('catalog', READ);
    const writing = ours.acquire('catalog', { ...WRITE, leaseMs: 1_000, renew: false });
    await clock.advance(100);
    const turn = await backend.inspect(slot(0));
    await clock.advance(5_600);
    expect((await backend.inspect(slot(0)))?.fencingToken).toBe(turn!.fencingToken);
    await reading.release();
    await clock.advance(0);
    const lock = await writing;
    expect(lock.remainingMs()).toBeGreaterThan(950);
    await clock.advance(1_000);
    expect(lock.isValid()).toBe(false);
  });

  it.each([0, 5])(
    'without renewal that loses slot %i before its lease begins anew acquires again',
    async (index) => {
      const fixture = lockFixture();
      const { ours, theirs, backend, clock, eventNames } = fixture;
      const reading = await theirs.acquire('catalog', READ);
      const writing = ours.acquire('catalog', { ...WRITE, renew: false });
      await clock.advance(100);
      const record = (await backend.inspect(slot(index)))!;
      const taken = index > 0 && record.instance === 'theirs' ? slot(index + 1) : slot(index);
      await backend.forceRelease(taken, (await backend.inspect(taken))!.fencingToken);
      await reading.release();
      await clock.advance(1_000);
      const lock = await writing;
      expect(lock.isValid()).toBe(true);
      expect(new Set(await instancesOf(fixture))).toEqual(new Set(['ours']));
      expect(await instancesOf(fixture)).toHaveLength(17);
      expect(eventNames().filter((name) => name === 'acquired' || name === 'lost')).toEqual([
        'acquired',
        'acquired',
      ]);
      await lock.release();
      await expectFree(fixture);
    },
  );

  it('without renewal that loses a slot while its lease begins anew acquires again', async () => {
    const fixture = lockFixture();
    const { ours, backend, clock } = fixture;
    const execute = backend.execute.bind(backend);
    let hasDelayed = false;
    const spy = vi.spyOn(backend as LockBackend, 'execute');
    spy.mockImplementation(async (requests, _timeoutMs, onResult) => {
      const results = await execute(requests);
      if (!requests.renew || hasDelayed) return results;
      hasDelayed = true;
      // One is confirmed at once, and the others some time later.
      onResult!('renew', 3, results.renew[3]!);
      await new Promise((resolve) => clock.after(200, () => resolve(undefined)));
      return results;
    });
    const writing = ours.acquire('catalog', { ...WRITE, renew: false });
    await clock.advance(100);
    await backend.forceRelease(slot(3), (await backend.inspect(slot(3)))!.fencingToken);
    await ours.confirmHeld('catalog');
    await clock.advance(1_000);
    const lock = await writing;
    expect(lock.isValid()).toBe(true);
    await lock.release();
    await expectFree(fixture);
  });

  it('without renewal that does not wait gets nothing if it loses a slot before its lease begins anew', async () => {
    const fixture = lockFixture();
    const { ours, backend, clock } = fixture;
    const execute = backend.execute.bind(backend);
    vi.spyOn(backend as LockBackend, 'execute').mockImplementation(async (requests) => {
      if (requests.renew) await backend.forceRelease(slot(3), (await backend.inspect(slot(3)))!.fencingToken);
      return execute(requests);
    });
    const trying = ours.tryAcquire('catalog', { mode: 'write', renew: false });
    await clock.advance(1_000);
    expect(await trying).toBeNull();
    await clock.advance(1_000);
    await expectFree(fixture);
  });

  it('loses its lock with any of its slots', async () => {
    const { ours, backend, eventNames } = lockFixture();
    for (const index of [0, 7]) {
      const lock = await ours.acquire('catalog', WRITE);
      await backend.forceRelease(slot(index), (await backend.inspect(slot(index)))!.fencingToken);
      await ours.confirmHeld('catalog');
      expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', key: 'catalog' });
      await lock.release();
    }
    expect(eventNames()).toEqual(['acquired', 'lost', 'acquired', 'lost']);
  });

  it('that leaves while it waits leaves nothing held or queued', async () => {
    const fixture = lockFixture();
    const { ours, theirs, clock, eventNames } = fixture;
    const reading = await theirs.acquire('catalog', READ);
    const controller = new AbortController();
    const aborted = recordOf(ours.acquire('catalog', { ...WRITE, signal: controller.signal }));
    const late = recordOf(ours.acquire('catalog', { mode: 'write', waitMs: 2_000 }));
    await clock.advance(100);
    controller.abort(new Error('enough'));
    expect(await aborted).toMatchObject({ message: 'enough' });
    await clock.advance(2_000);
    expect(await late).toBeInstanceOf(LockTimeoutError);
    expect(eventNames().filter((name) => name === 'timeout')).toHaveLength(1);
    await reading.release();
    await clock.advance(10_000);
    await expectFree(fixture);
  });

  it('and a reader that crash block the key only until their leases end', async () => {
    const { ours, theirs, backend, clock } = lockFixture();
    const dead = { holder: 'dead', leaseMs: 5_000, instance: 'dead' };
    await backend.execute({
      acquire: Array.from({ length: 17 }, (_, index) => ({ key: slot(index), ...dead })),
    });
    const waiting = [ours.acquire('catalog', READ), theirs.acquire('catalog', WRITE)];
    await clock.advance(4_900);
    expect(await Promise.all(waiting.map(stateOf))).toEqual(['pending', 'pending']);
    await clock.advance(2_000);
    const first = await Promise.race(waiting);
    await first.release();
    await clock.advance(2_000);
    expect(await Promise.all(waiting.map(stateOf))).toEqual(['fulfilled', 'fulfilled']);
  });
});

describe('locks with a mode', () => {
  it('a read lock has no fencing token, and is printed without one', async () => {
    const { ours } = lockFixture();
    await ours.withLock('catalog', READ, async (lock) => {
      expect(() => lock.fencingToken).toThrow(LockConfigError);
      expect(() => lock.fencingTokenOf('catalog')).toThrow(LockConfigError);
      expect(() => fencingTokenOf(lock)).toThrow(LockConfigError);
      expect(JSON.parse(JSON.stringify(lock))).toEqual({
        key: 'catalog',
        mode: 'read',
        remainingMs: lock.remainingMs(),
      });
      await ours.withLock('catalog', { ...READ, reentrant: true }, (inner) =>
        expect(JSON.stringify(inner)).toBe(JSON.stringify(lock)),
      );
    });
  });

  it('a reader that wants to write fails at once, and the reverse: a context re-enters only the same mode', async () => {
    const { ours } = lockFixture();
    for (const [outer, inner] of [
      [READ, WRITE],
      [WRITE, READ],
    ] as const)
      await ours.withLock('catalog', outer, async () => {
        await expect(ours.acquire('catalog', outer)).rejects.toBeInstanceOf(LockReentryError);
        for (const reentrant of [false, true])
          await expect(ours.acquire('catalog', { ...inner, reentrant })).rejects.toBeInstanceOf(
            LockReentryError,
          );
        await ours.withLock('catalog', { ...outer, reentrant: true }, (lock) =>
          expect(lock.isValid()).toBe(true),
        );
      });
  });

  it('a context whose lock is lost does not wait for what is left of it', async () => {
    const { ours, backend } = lockFixture();
    for (const inner of [READ, WRITE]) {
      const work = ours.withLock('catalog', WRITE, async () => {
        await backend.forceRelease(slot(0), (await backend.inspect(slot(0)))!.fencingToken);
        await ours.confirmHeld('catalog');
        return ours.acquire('catalog', inner);
      });
      await expect(work).rejects.toBeInstanceOf(LockLostError);
    }
  });

  it('a key is of one kind, and a mode goes with one key and no permits', async () => {
    const { ours } = lockFixture();
    await ours.withLock('plain', {}, () => undefined);
    await ours.withLock('permits', { permits: 2 }, () => undefined);
    await ours.withLock('mode', READ, () => undefined);
    await ours.withLock('mode', WRITE, () => undefined);
    for (const wrong of [
      ours.acquire('plain', READ),
      ours.acquire('permits', WRITE),
      ours.acquire('mode'),
      ours.acquire('mode', { permits: 2 }),
      ours.acquire(['mode', 'other']),
      ours.acquire(['a', 'b'], READ),
      ours.acquire('c', { ...READ, permits: 2 }),
      ours.acquire('d', { mode: 'upgrade' as 'read' }),
    ])
      await expect(wrong).rejects.toBeInstanceOf(LockConfigError);
  });

  it('are inspected, listed and released by force', async () => {
    const { ours, theirs, another } = lockFixture();
    const lock = await ours.acquire('catalog', WRITE);
    await theirs.acquire('prices', READ);
    await ours.acquire('prices', READ);
    expect(await theirs.inspect('catalog')).toMatchObject({ mode: 'write', fencingToken: lock.fencingToken });
    expect((await theirs.inspect('catalog'))?.holders).toHaveLength(1);
    expect((await another().inspect('prices'))?.holders?.map(({ mode }) => mode)).toEqual(['read', 'read']);
    const listed: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await theirs.list({ limit: 2, ...(cursor !== undefined && { cursor }) });
      listed.push(...page.locks.map(({ key, mode }) => `${key} ${mode}`));
      cursor = page.cursor;
    } while (cursor !== undefined);
    expect(listed.sort()).toEqual(['catalog write', 'prices read', 'prices read']);
    expect(await theirs.forceRelease('catalog', lock.fencingToken + 64n)).toBe(false);
    expect(await theirs.forceRelease('catalog', lock.fencingToken)).toBe(true);
    expect(await theirs.tryAcquire('catalog', { mode: 'write' })).not.toBeNull();
  });

  it('are published as one lock', async () => {
    const { ours, theirs, clock, eventNames } = lockFixture();
    const reading = await ours.acquire('catalog', READ);
    const writing = theirs.acquire('catalog', WRITE);
    await clock.advance(50);
    const late = ours.acquire('catalog', READ);
    await clock.advance(150);
    const later = ours.acquire('catalog', READ);
    await clock.advance(50);
    await (await late).release();
    await reading.release();
    await clock.advance(500);
    await (await writing).release();
    await clock.advance(500);
    await (await later).release();
    expect(eventNames()).toEqual([
      ...['acquired', 'contended', 'acquired', 'contended', 'released', 'released'],
      ...['acquired', 'released', 'acquired', 'released'],
    ]);
  });

  it('reject when the store cannot be reached, and when the application ends', async () => {
    const { ours, theirs, backend, clock } = lockFixture();
    const refused = { refuse: true } as const;
    for (const mode of ['read', 'write'] as const)
      for (const method of ['acquire', 'tryAcquire'] as const) {
        backend.next('inspect', refused, mode === 'read' ? 1 : 0);
        backend.next('acquire', refused, mode === 'read' && method === 'tryAcquire' ? 0 : 1);
        await expect(ours[method]('catalog', { mode })).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      }
    await theirs.acquire('catalog', WRITE);
    const waiting = [recordOf(ours.acquire('catalog', READ)), recordOf(ours.acquire('catalog', WRITE))];
    await clock.advance(100);
    ours.stopGranting();
    await clock.advance(100);
    for (const failure of waiting) expect(await failure).toMatchObject({ code: 'LOCK_SHUTDOWN' });
  });

  it('a reader that cannot learn of writers waits in their queue, and tryAcquire does not call that taken', async () => {
    const { ours, another, backend, clock } = lockFixture();
    backend.next('inspect', { silence: true }, 2);
    const [reading, tried] = [ours.acquire('catalog', READ), recordOf(another().tryAcquire('catalog', READ))];
    await clock.advance(999);
    expect([await stateOf(reading), await stateOf(tried)]).toEqual(['pending', 'pending']);
    await clock.advance(1);
    expect((await reading).isValid()).toBe(true);
    expect(await tried).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  });

  it('that do not wait ask once, and time out', async () => {
    const fixture = lockFixture();
    const { ours, theirs, clock, eventNames } = fixture;
    const held = await theirs.acquire('catalog', WRITE);
    for (const mode of ['read', 'write'] as const) {
      const failure = recordOf(ours.acquire('catalog', { mode, waitMs: 0 }));
      await clock.advance(0);
      expect(await failure).toBeInstanceOf(LockTimeoutError);
    }
    await held.release();
    for (const mode of ['read', 'write'] as const)
      await (await ours.acquire('catalog', { mode, waitMs: 0 })).release();
    await clock.advance(1_000);
    await expectFree(fixture);
    expect(eventNames().filter((name) => name === 'timeout')).toHaveLength(2);
  });

  it('a writer that does not wait and loses its turn meanwhile keeps no slot', async () => {
    const { ours, theirs, backend } = lockFixture();
    const execute = backend.execute.bind(backend);
    vi.spyOn(backend as LockBackend, 'execute').mockImplementation(async (requests) => {
      const results = await execute(requests);
      if (!requests.acquire?.some(({ key }) => key === slot(1))) return results;
      const turn = await backend.inspect(slot(0));
      await backend.forceRelease(slot(0), turn!.fencingToken);
      await ours.confirmHeld('catalog');
      return results;
    });
    expect(await ours.tryAcquire('catalog', { mode: 'write' })).toBeNull();
    expect(ours.heldKeys).toEqual([]);
    expect(await theirs.tryAcquire('catalog', { mode: 'read' })).not.toBeNull();
  });

  it('are counted in the order of locks', async () => {
    const { nest, inversions, edges } = orderFixture();
    await nest([['catalog', READ], 'order']);
    await nest(['order', ['catalog', WRITE]]);
    expect(edges()).toEqual(['catalog>order', 'order>catalog']);
    expect(inversions).toHaveLength(1);
  });
});
