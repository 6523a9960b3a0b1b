import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { LockLostError, LockShutdownError } from '../../../lib/core/errors.js';
import { currentLock } from '../../../lib/core/lock-context.js';
import type { LeaderTerm } from '../../../lib/election/candidate.interface.js';
import { Gate } from '../../support/gate.js';
import { electionFixture } from './election-fixture.js';

/** Runs until its term ends, as most leaders do. */
const untilAborted = ({ signal }: LeaderTerm) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));

describe('a leader', () => {
  it('is the first candidate, and the number of its term is the fencing token', async () => {
    const { clock, ours, theirs } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    expect(one.isLeader()).toBe(false);
    await clock.advance(0);
    expect([one.isLeader(), two.isLeader()]).toEqual([true, false]);
    expect(two.term()).toBeNull();
    const { number, signal } = one.term()!;
    expect(signal.aborted).toBe(false);
    expect(await two.leader()).toMatchObject({
      instance: 'ours',
      term: number,
      since: new Date(clock.wallMs()),
    });
  });

  it('stays leader as long as its lease is renewed, every five seconds', async () => {
    const { clock, backend, ours } = electionFixture();
    const candidate = ours.elections.join('boss');
    await clock.advance(60_000);
    const first = candidate.term();
    expect(backend.count('renew')).toBeGreaterThanOrEqual(9);
    expect(backend.count('renew')).toBeLessThanOrEqual(12);
    await clock.advance(3_600_000);
    expect(candidate.term()).toBe(first);
  });

  it('runs all its methods, also if one of them disposes a job of the election', async () => {
    const { clock, ours } = electionFixture();
    const ran: string[] = [];
    const { elections } = ours;
    elections.joinForMethod('boss');
    const dispose = elections.joinForJob('boss', { location: 'job', run: () => void ran.push('job') });
    const reload = () => {
      ran.push('reload');
      dispose();
    };
    elections.onElected('boss', { location: 'reload', run: reload });
    elections.onElected('boss', { location: 'dispatch', run: () => void ran.push('dispatch') });
    await clock.advance(0);
    expect(ran).toEqual(['job', 'reload', 'dispatch']);
  });

  it('no longer leads at the end of its lease, to the millisecond', async () => {
    const { clock, backend, ours, messages } = electionFixture();
    const candidate = ours.elections.join('boss');
    backend.next('renew', { refuse: true }, Infinity);
    await clock.advance(0);
    const { signal, number } = candidate.term()!;
    await clock.advance(14_849);
    expect([candidate.isLeader(), signal.aborted]).toEqual([true, false]);
    await clock.advance(1);
    expect([candidate.isLeader(), signal.aborted]).toEqual([false, true]);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect(messages('revoked')).toMatchObject([{ election: 'boss', term: number, reason: 'lost' }]);
  });

  it('knows after a pause that it no longer leads, before any timer has run', async () => {
    const { clock, ours } = electionFixture();
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    const { signal } = candidate.term()!;
    clock.freeze(15_000);
    expect([candidate.isLeader(), candidate.term(), signal.aborted]).toEqual([false, null, true]);
  });

  it('does not trust its lease after the machine slept, until it is confirmed', async () => {
    const { clock, ours } = electionFixture();
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    const term = candidate.term();
    clock.setWall(clock.wallMs() + 60_000);
    expect(candidate.isLeader()).toBe(false);
    await clock.advance(6_500);
    expect(candidate.term()).toBe(term);
  });

  it('whose lease was lost in the store is elected again, with a larger term', async () => {
    const { clock, backend, ours } = electionFixture();
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    const { number } = candidate.term()!;
    backend.forgetAll();
    await clock.advance(15_000);
    expect(candidate.term()!.number > number).toBe(true);
  });
});

describe('the work of a term', () => {
  it('does not begin when the term has ended already', async () => {
    const { clock, ours } = electionFixture();
    const candidate = ours.elections.join('boss');
    let runs = 0;
    ours.elections.onElected('boss', { location: 'first', run: () => candidate.leave() });
    ours.elections.onElected('boss', { location: 'second', run: () => (runs += 1) });
    await clock.advance(0);
    expect([candidate.isLeader(), runs]).toEqual([false, 0]);
  });

  it('gets the term, and has its lease as the current lock', async () => {
    const { clock, ours } = electionFixture();
    const seen: [LeaderTerm, bigint | undefined][] = [];
    ours.elections.onElected('boss', {
      location: 'work',
      run: (term) => seen.push([term, currentLock()?.fencingToken]),
    });
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    expect(seen).toEqual([[candidate.term(), candidate.term()!.number]]);
  });

  it('may return, and the process stays leader', async () => {
    const { clock, ours } = electionFixture();
    ours.elections.onElected('boss', { location: 'work', run: () => 'done' });
    const candidate = ours.elections.join('boss');
    await clock.advance(60_000);
    expect(candidate.isLeader()).toBe(true);
  });

  it('may throw, which is published, and the process stays leader with its other work', async () => {
    const { clock, ours, messages } = electionFixture();
    const error = new Error('broken');
    const other = { isRunning: false };
    ours.elections.onElected('boss', {
      location: 'Boss.work',
      run: () => {
        throw error;
      },
    });
    ours.elections.onElected('boss', { location: 'other', run: () => (other.isRunning = true) });
    const candidate = ours.elections.join('boss');
    await clock.advance(60_000);
    expect(candidate.isLeader()).toBe(true);
    expect(other.isRunning).toBe(true);
    expect(messages('leader-failed')).toMatchObject([{ election: 'boss', method: 'Boss.work', error }]);
  });

  it.each<[string, () => unknown]>([
    ['a Readable stream', () => Readable.from([1])],
    ['an Observable', () => ({ subscribe: () => undefined, pipe: () => undefined })],
    ['an async iterable', () => ({ [Symbol.asyncIterator]: () => undefined })],
  ])('that returns %s, which nothing would wait for, has failed', async (kind, run) => {
    const { clock, ours, messages } = electionFixture();
    ours.elections.onElected('boss', { location: 'Boss.work', run: () => Promise.resolve(run()) });
    ours.elections.onRevoked('boss', { location: 'Boss.tidy', run });
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    expect(candidate.isLeader()).toBe(true);
    await candidate.resign();
    const error: unknown = expect.objectContaining({
      message: expect.stringContaining(`got ${kind}`) as string,
    });
    expect(messages('leader-failed')).toMatchObject([
      { method: 'Boss.work', error },
      { method: 'Boss.tidy', error },
    ]);
  });

  it('that ends after its signal delays the election of the next leader', async () => {
    const { clock, ours, theirs, isHeld } = electionFixture();
    const gate = new Gate();
    ours.elections.onElected('boss', { location: 'work', run: () => gate.passed });
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    const resigned = one.resign();
    await clock.advance(14_000);
    expect([one.isLeader(), two.isLeader(), await isHeld('boss')]).toEqual([false, false, true]);
    gate.open();
    await resigned;
    await clock.advance(250);
    expect(two.isLeader()).toBe(true);
  });

  it('that does not end keeps the term from being released, and is reported', async () => {
    const { backend, clock, ours, theirs, messages } = electionFixture();
    ours.elections.onElected('boss', { location: 'Boss.work', run: () => new Promise(() => undefined) });
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    const { number: term } = one.term()!;
    const resigned = one.resign();
    await clock.advance(15_000);
    await resigned;
    expect(messages('leader-overran')).toMatchObject([{ election: 'boss', term, methods: ['Boss.work'] }]);
    expect(two.isLeader()).toBe(false);
    await clock.advance(15_500);
    expect(two.isLeader()).toBe(true);
    expect(backend.count('release')).toBe(0);
  });

  it('that has not ended keeps this process from campaigning again', async () => {
    const { backend, clock, ours } = electionFixture();
    const gate = new Gate();
    let runs = 0;
    const run = () => {
      runs += 1;
      return runs === 1 ? gate.passed : undefined;
    };
    ours.elections.onElected('boss', { location: 'work', run });
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    backend.forgetAll();
    await clock.advance(120_000);
    expect([candidate.isLeader(), runs]).toEqual([false, 1]);
    gate.open();
    await clock.advance(1_000);
    expect([candidate.isLeader(), runs]).toEqual([true, 2]);
  });

  it('in @OnRevoked methods runs before the leadership is released', async () => {
    const { clock, ours, theirs } = electionFixture();
    const order: string[] = [];
    ours.elections.onElected('boss', {
      location: 'work',
      run: async (term) => {
        await untilAborted(term);
        order.push('work ended');
      },
    });
    ours.elections.onRevoked('boss', { location: 'farewell', run: () => order.push('farewell') });
    theirs.elections.onElected('boss', { location: 'work', run: () => order.push('next elected') });
    const candidate = ours.elections.join('boss');
    theirs.elections.join('boss');
    await clock.advance(0);
    await candidate.resign();
    await clock.advance(250);
    expect(order).toHaveLength(3);
    expect(order.at(-1)).toBe('next elected');
  });
});

describe('at shutdown', () => {
  it('the signal aborts at once, the shutdown waits for the work, and the next candidate leads', async () => {
    const { clock, ours, theirs } = electionFixture();
    const gate = new Gate();
    ours.elections.onElected('boss', { location: 'work', run: () => gate.passed });
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    const { signal } = one.term()!;
    ours.locks.stopGranting();
    expect([one.isLeader(), signal.aborted]).toEqual([false, true]);
    expect(signal.reason).toBeInstanceOf(LockShutdownError);
    const drained = ours.locks.drain({ drainMs: 10_000, abortGraceMs: 2_000 });
    await clock.advance(5_000);
    expect(two.isLeader()).toBe(false);
    gate.open();
    await clock.advance(250);
    expect(await drained).toEqual([]);
    expect(two.isLeader()).toBe(true);
  });

  it('work that does not end is reported, and its lease expires', async () => {
    const { clock, ours, messages, isHeld } = electionFixture();
    ours.elections.onElected('boss', { location: 'Boss.work', run: () => new Promise(() => undefined) });
    ours.elections.join('boss');
    await clock.advance(0);
    const drained = ours.locks.drain({ drainMs: 1_000, abortGraceMs: 1_000 });
    await clock.advance(2_000);
    expect(await drained).toEqual(['boss']);
    ours.elections.close();
    await ours.locks.close();
    expect(messages('revoked')).toMatchObject([{ reason: 'shutdown' }]);
    expect(messages('leader-overran')).toMatchObject([{ methods: ['Boss.work'] }]);
    expect(await isHeld('boss')).toBe(true);
    await clock.advance(15_000);
    expect(await isHeld('boss')).toBe(false);
    expect(clock.pending).toBe(0);
  });

  it('a queued candidate leaves the queue, and leaves nothing behind', async () => {
    const { clock, ours, theirs } = electionFixture();
    const [, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    for (const { locks, elections } of [theirs, ours]) {
      const drained = locks.drain({ drainMs: 1_000, abortGraceMs: 1_000 });
      await clock.advance(0);
      expect(await drained).toEqual([]);
      elections.close();
      await locks.close();
    }
    expect(two.isLeader()).toBe(false);
    expect(clock.pending).toBe(0);
    expect(() => theirs.elections.join('boss')).toThrow(LockShutdownError);
  });
});
