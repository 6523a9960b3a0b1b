import { describe, expect, it } from 'vitest';
import { readWriteStoreKey } from '../../../../lib/core/store-key.js';
import type { Locks } from '../../../../lib/core/locks.js';
import { lockFixture, stateOf } from '../lock-fixture.js';

const READ = { mode: 'read', waitMs: 600_000 } as const;
const WRITE = { mode: 'write', waitMs: 600_000 } as const;
const slot = (index: number) => readWriteStoreKey('lock', 'catalog', index);

const holdersSeenBy = async (locks: Locks) =>
  (await locks.inspect('catalog'))?.holders?.map(({ mode, instance }) => `${mode} ${instance}`);

const listedBy = async (locks: Locks) =>
  (await locks.list({})).locks.map(({ mode, instance }) => `${mode} ${instance}`);

/** Which processes read, wait to write, and watch. The processes of `another()` have the same instance. */
const processes = {
  'the same process': ({ ours, theirs }: Fixture) => ({ reading: ours, writing: ours, watching: theirs }),
  'another process': ({ ours, theirs, another }: Fixture) => ({
    reading: ours,
    writing: theirs,
    watching: another(),
  }),
  'another process with the same instance': ({ another, ours }: Fixture) => ({
    reading: another(),
    writing: another(),
    watching: ours,
  }),
};
type Fixture = ReturnType<typeof lockFixture>;

describe.each(Object.entries(processes))('a writer that waits for a reader of %s', (_, choose) => {
  async function wait() {
    const fixture = lockFixture();
    const { reading, writing, watching } = choose(fixture);
    const reader = await reading.acquire('catalog', READ);
    const writer = writing.acquire('catalog', WRITE);
    await fixture.clock.advance(300);
    return { ...fixture, reading, writing, watching, reader, writer };
  }

  it('is inspected and listed with the reader', async () => {
    const { watching, reading, writing } = await wait();
    const expected = [`write ${writing.instance}`, `read ${reading.instance}`];
    expect(await holdersSeenBy(watching)).toEqual(expected);
    expect((await listedBy(watching)).sort()).toEqual(expected.sort());
    for (const limit of [1, 2, 3]) {
      const seen: string[] = [];
      let cursor: string | undefined = '';
      do {
        const page = await watching.list({ limit, ...(cursor && { cursor }) });
        seen.push(...page.locks.map(({ mode, instance }) => `${mode} ${instance}`));
        cursor = page.cursor;
      } while (cursor !== undefined);
      expect(seen.sort()).toEqual(expected);
    }
  });

  it('leaves the reader its lock when it is released by force', async () => {
    const { clock, reading, watching, reader, writer } = await wait();
    const { fencingToken, permit } = (await watching.inspect('catalog'))!;
    expect(await watching.forceRelease('catalog', fencingToken, permit)).toBe(true);
    await reading.confirmHeld('catalog');
    expect(reader.isValid()).toBe(true);
    expect(await watching.tryAcquire('catalog', { mode: 'write' })).toBeNull();
    // It begins again.
    await clock.advance(20_000);
    expect([reader.isValid(), await stateOf(writer)]).toEqual([true, 'pending']);
    await reader.release();
    await clock.advance(1_000);
    expect((await writer).isValid()).toBe(true);
  });

  it('keeps the slots that it has until it has noticed a release by force, so that nobody reads beside it', async () => {
    const { watching, reader, writer } = await wait();
    await watching.forceRelease('catalog', (await watching.inspect('catalog'))!.fencingToken, 0);
    expect(await watching.tryAcquire('catalog', { mode: 'read' })).toBeNull();
    await reader.release();
    expect((await writer).isValid()).toBe(true);
    expect(await watching.tryAcquire('catalog', { mode: 'read' })).toBeNull();
  });

  it('keeps its turn when the reader is released by force', async () => {
    const { clock, watching, reading, reader, writer } = await wait();
    const { fencingToken, permit } = (await watching.inspect('catalog'))!.holders![1]!;
    expect(await watching.forceRelease('catalog', fencingToken, permit)).toBe(true);
    await reading.confirmHeld('catalog');
    expect(reader.isValid()).toBe(false);
    await reader.release();
    await clock.advance(3_000);
    expect((await writer).isValid()).toBe(true);
  });
});

describe('a writer that holds the key', () => {
  it('is one holder, and one release by force frees the key', async () => {
    const { ours, theirs } = lockFixture();
    const writer = await ours.acquire('catalog', WRITE);
    expect(await holdersSeenBy(theirs)).toEqual(['write ours']);
    expect(await listedBy(theirs)).toEqual(['write ours']);
    expect(await theirs.forceRelease('catalog', writer.fencingToken, 0)).toBe(true);
    expect(await theirs.inspect('catalog')).toBeNull();
  });

  it('is released by force with its own token, also if the store knows only that of the writer before it', async () => {
    const { ours, theirs } = lockFixture();
    const first = await ours.acquire('catalog', WRITE);
    const second = ours.acquire('catalog', WRITE);
    await first.release();
    const { fencingToken } = await second;
    expect((await theirs.inspect('catalog'))?.fencingToken).toBe(first.fencingToken);
    for (const other of [first.fencingToken - 1n, fencingToken + 100n])
      expect(await theirs.forceRelease('catalog', other, 0)).toBe(false);
    expect(await theirs.forceRelease('catalog', fencingToken, 0)).toBe(true);
    expect(await theirs.inspect('catalog')).toBeNull();
  });
});

describe('a slot that one process uses to write and then to read', () => {
  it('is that of the reader after a writer without its turn has released it', async () => {
    const { ours, theirs, backend, clock } = lockFixture();
    const first = await ours.acquire('catalog', WRITE);
    // It waits for the slots, so that their grants may be handed over.
    const second = ours.acquire('catalog', WRITE);
    await first.release();
    const writer = await second;
    await backend.forceRelease(slot(0), writer.fencingToken);
    await ours.confirmHeld('catalog');
    const reading = ours.acquire('catalog', READ);
    await clock.advance(100);
    expect(await stateOf(reading)).toBe('pending');
    await writer.release();
    await clock.advance(1_000);
    expect((await reading).isValid()).toBe(true);
    expect(await holdersSeenBy(theirs)).toEqual(['read ours']);
  });

  it('is that of the writer after a reader without its turn has stopped waiting for it', async () => {
    const { ours, theirs, backend, clock } = lockFixture();
    const other = await theirs.acquire('catalog', WRITE);
    await backend.forceRelease(slot(0), other.fencingToken);
    await theirs.confirmHeld('catalog');
    const leaving = new AbortController();
    const reading = ours.acquire('catalog', { ...READ, signal: leaving.signal }).catch(() => undefined);
    await clock.advance(100);
    await backend.forceRelease(slot(0), (await backend.inspect(slot(0)))!.fencingToken);
    await ours.confirmHeld('catalog');
    const writing = ours.acquire('catalog', WRITE);
    await clock.advance(100);
    leaving.abort();
    await reading;
    await clock.advance(100);
    await other.release();
    await clock.advance(5_000);
    expect((await writing).isValid()).toBe(true);
    expect(await holdersSeenBy(theirs)).toEqual(['write ours']);
  });
});
