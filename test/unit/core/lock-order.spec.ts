import { describe, expect, it } from 'vitest';
import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import { LockConfigError, LockReentryError } from '../../../lib/core/errors.js';
import { LockHandle } from '../../../lib/core/leases/lock-handle.js';
import { MAX_EDGES } from '../../../lib/core/lock-order-graph.js';
import { ScriptedBackend } from '../scripted-backend.js';
import { recordRequests } from './request-log.js';
import { orderFixture } from './lock-order-fixture.js';

describe('the order of locks', () => {
  it('is reported when it is the opposite of an earlier one, before the call sends or waits for anything', async () => {
    const backend = new ScriptedBackend();
    const exchanges = recordRequests(backend);
    const { locks, inversions, nest } = orderFixture({ backend });
    await nest(['stock:1', 'order:1']);
    expect(inversions).toEqual([]);
    const sent = await locks.withLock('order:2', {}, () => {
      const before = exchanges.length;
      const inner = locks.withLock('stock:2', {}, () => undefined);
      expect(inversions).toHaveLength(1);
      expect(exchanges).toHaveLength(before);
      return inner.then(() => exchanges.length - before);
    });
    expect(sent).toBeGreaterThan(0);
  });

  it('is reported with both keys, both templates and both stacks', async () => {
    const { locks, inversions, nest } = orderFixture();
    await nest([['stock:1', { label: 'stock' }], 'order:1']);
    await locks.withLock('order:2', {}, () => locks.acquire('stock:2', { label: 'stock' }));
    expect(inversions).toEqual([
      expect.objectContaining({
        ...{ key: 'stock:2', template: 'stock', purpose: 'lock', module: 'default' },
        ...{ heldKey: 'order:2', from: 'order:{n}', to: 'stock' },
        stack: expect.stringMatching(/^ {4}at [^]*acquire[^]*lock-order\.spec\.ts/),
        opposite: [
          expect.objectContaining({
            ...{ from: 'stock', to: 'order:{n}', heldKey: 'stock:1', key: 'order:1' },
            stack: expect.stringMatching(/^ {4}at [^]*withLock[^]*lock-order\.spec\.ts/),
          }),
        ],
      }),
    ]);
  });

  it('is reported when a circle of any length closes', async () => {
    const { inversions, nest } = orderFixture();
    await nest(['a', 'b']);
    await nest(['c', 'd']);
    await nest(['b', 'c']);
    expect(inversions).toEqual([]);
    await nest(['d', 'a']);
    expect(inversions).toHaveLength(1);
    expect(inversions[0]!.opposite!.map(({ from, to }) => `${from}>${to}`)).toEqual(['a>b', 'b>c', 'c>d']);
  });

  it('is not set by the keys of one call, which have an order of their own', async () => {
    const { locks, inversions, edges } = orderFixture({ lockOrder: 'throw' });
    await locks.withLock(['account:1', 'account:2'], {}, () => undefined);
    await locks.withLock(['account:2', 'account:1'], {}, () => undefined);
    expect({ inversions, edges: edges() }).toEqual({ inversions: [], edges: [] });
  });

  it('counts each of several keys, held or asked for, and keys with permits', async () => {
    const { locks, inversions } = orderFixture({ lockOrder: 'throw' });
    await locks.withLock(['a', 'b'], {}, () => locks.withLock('pdf', { permits: 2 }, () => undefined));
    await locks.withLock('pdf', { permits: 2 }, async () => {
      await expect(locks.withLock(['b', 'c'], {}, () => undefined)).rejects.toThrow(LockConfigError);
      expect(await locks.tryAcquire(['b', 'c'])).not.toBeNull();
    });
    expect(inversions).toMatchObject([{ heldKey: 'pdf', key: 'b', from: 'pdf', to: 'b' }]);
  });

  it('is reported with the shortest circle, once for each call', async () => {
    const { inversions, edges, nest } = orderFixture();
    await nest(['a', 'b', 'c']);
    await nest(['c', 'd']);
    await nest(['d', 'e', 'a']);
    expect(inversions).toMatchObject([{ from: 'd', to: 'a', opposite: [{ to: 'c' }, { to: 'd' }] }]);
    expect(edges()).toEqual(['a>b', 'b>c', 'a>c', 'c>d', 'd>e', 'e>a', 'd>a']);
  });

  it('is reported at the first pair of keys of one template, because another call may have the opposite order', async () => {
    const { inversions, nest } = orderFixture();
    await nest(['account:1', 'account:2']);
    expect(inversions).toMatchObject([
      { from: 'account:{n}', to: 'account:{n}', heldKey: 'account:1', key: 'account:2', opposite: [] },
    ]);
  });

  it('is reported once for each pair of templates', async () => {
    const { inversions, nest } = orderFixture();
    for (const id of [1, 2, 3]) {
      await nest([`a:${id}`, `b:${id}`]);
      await nest([`b:${id}`, `a:${id}`]);
    }
    expect(inversions).toHaveLength(1);
  });

  it('does not look wrong because another order was wrong', async () => {
    const { inversions, nest } = orderFixture();
    await nest(['a', 'b']);
    await nest(['b', 'a']);
    await nest(['a', 'c']);
    await nest(['c', 'b']);
    expect(inversions).toMatchObject([{ from: 'b', to: 'a' }]);
  });

  it('does not depend on how the placeholders of the templates are written', async () => {
    const { inversions, nest } = orderFixture();
    await nest([['order:7', { label: 'order:{0.id}' }], 'stock']);
    await nest(['stock', ['order:8', { label: 'order:{1}' }]]);
    expect(inversions).toMatchObject([
      { from: 'stock', to: 'order:{1}', opposite: [{ from: 'order:{0.id}' }] },
    ]);
  });

  it('takes a stack only for a new pair of templates, and leaves the length of stacks as it was', async () => {
    const { nest } = orderFixture();
    const { stackTraceLimit, prepareStackTrace } = Error;
    const taken: unknown[] = [];
    try {
      Error.stackTraceLimit = 5;
      Error.prepareStackTrace = (_, frames) => void taken.push(frames) as unknown;
      await nest(['a:1']);
      expect(taken).toHaveLength(0);
      await nest(['a:1', 'b:1']);
      expect(taken).toHaveLength(1);
      await nest(['a:2', 'b:2']);
      expect(taken).toHaveLength(1);
      expect(Error.stackTraceLimit).toBe(5);
    } finally {
      Object.assign(Error, { stackTraceLimit, prepareStackTrace });
    }
  });
});

describe('a wrong order with lockOrder "throw"', () => {
  it('rejects each such call before it sends anything, and is published once', async () => {
    const backend = new ScriptedBackend();
    const { inversions, nest } = orderFixture({ lockOrder: 'throw', backend });
    await nest(['a:1', 'b:1']);
    const sent = backend.count('acquire');
    await expect(nest(['b:2', 'a:2'])).rejects.toThrow(LockConfigError);
    await expect(nest(['b:3', 'a:3'])).rejects.toThrow(
      'here "b:{n}" before "a:{n}", elsewhere "a:{n}" before "b:{n}".',
    );
    expect(backend.count('acquire')).toBe(sent + 2);
    expect(inversions).toHaveLength(1);
  });

  it('has the calls of the opposite order as causes', async () => {
    const { nest } = orderFixture({ lockOrder: 'throw' });
    await nest(['a:1', 'b:1']);
    await nest(['b:1', 'c:1']);
    const error = await nest(['c:2', 'a:2']).catch((reason: unknown) => reason as Error);
    expect(error).toMatchObject({
      ...{ code: 'LOCK_CONFIG', key: 'a:2' },
      cause: {
        message: 'A call that held "a:1" acquired "b:1".',
        stack: expect.stringMatching(/^Error: A call that held .*\n {4}at [^]*lock-order-fixture/),
        cause: { message: 'A call that held "b:1" acquired "c:1".' },
      },
    });
  });

  it('names the keys of this call, and how to acquire them together', async () => {
    const { nest } = orderFixture({ lockOrder: 'throw' });
    await expect(nest(['account:1', 'account:2'])).rejects.toThrow(
      'withLock(["account:1", "account:2"], work)',
    );
    await expect(nest(['account:3', 'account:4'])).rejects.toThrow(
      'withLock(["account:3", "account:4"], work)',
    );
  });
});

describe('the order of locks does not count', () => {
  it('a call that does not wait, but counts the locks acquired under it', async () => {
    const { locks, edges, nest } = orderFixture();
    await locks.withLock('a', {}, async () => (await locks.tryAcquire('b'))?.release());
    await nest(['a', ['c', { waitMs: 0 }]]);
    expect(edges()).toEqual([]);
    await nest([['d', { waitMs: 0 }], 'e']);
    expect(edges()).toEqual(['d>e']);
  });

  it('a lock that is entered again', async () => {
    const { edges, nest } = orderFixture();
    await nest(['a:1', ['a:1', { reentrant: true }]]);
    await expect(nest(['a:1', 'a:1'])).rejects.toThrow(LockReentryError);
    expect(edges()).toEqual([]);
  });

  it('a lock from acquire() or tryAcquire() as held, because it belongs to no asynchronous context', async () => {
    const { locks, edges, nest } = orderFixture();
    const held = [await locks.acquire('a'), await locks.tryAcquire('b')];
    await nest(['c', 'd']);
    for (const lock of held) await lock?.release();
    expect(edges()).toEqual(['c>d']);
  });

  it('a lock that was released before, by hand or at the end of its work', async () => {
    const { locks, edges } = orderFixture();
    let continueLater!: () => Promise<void>;
    await locks.withLock('a', {}, async (lock) => {
      await lock.release();
      await locks.withLock('b', {}, () => undefined);
    });
    const later = await locks.withLock('c', {}, () => {
      const started = new Promise<void>((resolve) => (continueLater = async () => resolve()));
      return { done: started.then(() => locks.withLock('d', {}, () => undefined)) };
    });
    await continueLater();
    await later.done;
    expect(edges()).toEqual([]);
  });

  it('the lock of a run or a term, because no holder of a lock waits for it', async () => {
    const { locks, edges, nest } = orderFixture();
    const signal = new AbortController().signal;
    const term = await locks.leaders.wait('boss', { leaseMs: 30_000, signal });
    const run = await locks.jobs.claimTick('job', {});
    if (!(run instanceof LockHandle)) throw new Error('the job is claimed');
    await locks.runWithLock(term, () => locks.runWithLock(run, () => nest(['a', 'b'])));
    expect(edges()).toEqual(['a>b']);
    await term.release();
    await run.release();
  });

  it('a lock of another module', async () => {
    const backend = new MemoryBackend();
    const [one, other] = [orderFixture({ backend }), orderFixture({ backend })];
    await one.nest(['a'], () => other.nest(['b']));
    await other.nest(['b'], () => one.nest(['a']));
    expect([...one.edges(), ...other.edges()]).toEqual([]);
  });

  it('any lock, if it is off', async () => {
    const { locks, inversions, nest } = orderFixture({ lockOrder: 'off' });
    await nest(['a', 'b']);
    await nest(['b', 'a']);
    expect(locks.lockOrder).toBeUndefined();
    expect(inversions).toEqual([]);
  });
});

it('no more pairs of templates than a limit are recorded; known pairs are still checked', async () => {
  const { locks, inversions, edges, nest } = orderFixture({ lockOrder: 'throw' });
  await nest(['a', 'b']);
  await expect(nest(['b', 'a'])).rejects.toThrow(LockConfigError);
  const nameOf = (index: number) => `key ${String.fromCodePoint(0x4e00 + index)}`;
  await locks.withLock('c', {}, async () => {
    for (let index = 0; index < MAX_EDGES; index++) await nest([nameOf(index)]);
  });
  expect(edges()).toHaveLength(MAX_EDGES);
  expect(locks.lockOrder?.isFull).toBe(true);
  await nest(['d', 'd:1']);
  await expect(nest(['b', 'a'])).rejects.toThrow(LockConfigError);
  expect(inversions).toHaveLength(1);
});
