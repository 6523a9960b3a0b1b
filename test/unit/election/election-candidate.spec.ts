import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { LockConfigError } from '../../../lib/core/errors.js';
import { Elections } from '../../../lib/election/elections.js';
import { Gate } from '../../support/gate.js';
import { stateOf } from '../core/lock-fixture.js';
import { electionFixture } from './election-fixture.js';

describe('a leader that resigns', () => {
  it('is followed by a waiting candidate, not by itself', async () => {
    const { clock, ours, theirs, messages } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    const first = one.term()!;
    await one.resign();
    expect([one.isLeader(), first.signal.aborted]).toEqual([false, true]);
    await clock.advance(10_000);
    expect([one.isLeader(), two.isLeader()]).toEqual([false, true]);
    expect(two.term()!.number > first.number).toBe(true);
    expect(messages('revoked')).toMatchObject([{ instance: 'ours', reason: 'resigned' }]);
  });

  it('campaigns again', async () => {
    const { clock, ours, theirs } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    await one.resign();
    await clock.advance(2_000);
    await two.resign();
    await clock.advance(250);
    expect(one.isLeader()).toBe(true);
  });

  it('leads again if there is no other candidate, after a backoff that lets others go first', async () => {
    const { clock, ours } = electionFixture();
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    await candidate.resign();
    await clock.advance(499);
    expect(candidate.isLeader()).toBe(false);
    await clock.advance(501);
    expect(candidate.isLeader()).toBe(true);
  });

  it('without leading changes nothing', async () => {
    const { clock, ours, theirs } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    await two.resign();
    expect(one.isLeader()).toBe(true);
    await one.resign();
    await clock.advance(250);
    expect(two.isLeader()).toBe(true);
  });

  it('from within the work of its term does not wait for itself', async () => {
    const { clock, ours, messages } = electionFixture();
    const candidate = ours.elections.join('boss');
    ours.elections.onElected('boss', { location: 'work', run: () => candidate.resign() });
    await clock.advance(10_000);
    expect(messages('elected').length).toBeGreaterThan(1);
    expect(messages('leader-overran')).toEqual([]);
  });
});

describe('a candidate that leaves', () => {
  it('releases the leadership for good', async () => {
    const { clock, ours, isHeld } = electionFixture();
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    await candidate.leave();
    await clock.advance(60_000);
    expect([candidate.isLeader(), await isHeld('boss')]).toEqual([false, false]);
    expect(clock.pending).toBe(0);
  });

  it('is followed by one with the lease that a decorator has set', async () => {
    const { clock, ours } = electionFixture();
    const leaseMs = 4_000;
    // As the decorator does it.
    ours.elections.onElected('boss', { location: 'work', run: () => undefined });
    const candidate = ours.elections.join('boss', { leaseMs });
    await clock.advance(0);
    await candidate.leave();
    await candidate.ended;
    await clock.advance(0);
    const next = ours.elections.join('boss');
    expect(ours.elections.join('boss', { leaseMs })).toBe(next);
    await clock.advance(0);
    expect((await next.leader())?.remainingMs).toBeLessThanOrEqual(leaseMs);
  });

  it('leaves the wait queue', async () => {
    const { clock, ours, theirs, isHeld } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    await two.leave();
    await one.leave();
    await clock.advance(60_000);
    expect([two.isLeader(), await isHeld('boss')]).toEqual([false, false]);
  });

  it('at the moment of its election releases the leadership', async () => {
    const { clock, ours, isHeld, messages } = electionFixture();
    const candidate = ours.elections.join('boss');
    const acquired = 'nestjs-distributed-lock:acquired';
    const leave = () => void candidate.leave();
    subscribe(acquired, leave);
    await clock.advance(0);
    unsubscribe(acquired, leave);
    await clock.advance(1_000);
    expect([messages('elected'), await isHeld('boss')]).toEqual([[], false]);
  });

  it('may join again, and is queued behind waiting candidates', async () => {
    const { clock, ours, theirs } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(0);
    void one.leave();
    const again = ours.elections.join('boss');
    await clock.advance(1_000);
    expect([again.isLeader(), two.isLeader()]).toEqual([false, true]);
    await two.leave();
    await clock.advance(250);
    expect([one.isLeader(), again.isLeader()]).toEqual([false, true]);
  });

  it('and joins again campaigns only when the work of its old term has ended', async () => {
    const { clock, ours } = electionFixture();
    const gate = new Gate();
    let runs = 0;
    const run = () => {
      runs += 1;
      return gate.passed;
    };
    ours.elections.onElected('boss', { location: 'work', run });
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    const left = candidate.leave();
    ours.elections.join('boss');
    await clock.advance(60_000);
    await left;
    expect(runs).toBe(1);
    gate.open();
    await clock.advance(1_000);
    expect(runs).toBe(2);
  });
});

describe('a process that joins', () => {
  it('twice is one candidate', () => {
    const { ours } = electionFixture();
    expect(ours.elections.join('boss')).toBe(ours.elections.join('boss'));
    expect(ours.elections.join('boss', { leaseMs: 15_000 })).toBe(ours.elections.join('boss'));
  });

  it('twice with two leases gets an error', () => {
    const { ours } = electionFixture();
    ours.elections.join('boss');
    expect(() => ours.elections.join('boss', { leaseMs: 5_000 })).toThrow(LockConfigError);
  });

  it.each<[string, object]>([
    ['', {}],
    ['x'.repeat(256), {}],
    [undefined as never, {}],
    ['boss', { leaseMs: 0.5 }],
    ['boss', { renew: true }],
  ])('as %j with %j gets an error that names the mistake', (name, options) => {
    const { ours } = electionFixture();
    expect(() => ours.elections.join(name, options)).toThrow(LockConfigError);
  });

  it('does not disturb a lock or a job of the same name', async () => {
    const { clock, ours } = electionFixture();
    await ours.locks.acquire('boss');
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    expect(candidate.isLeader()).toBe(true);
  });
});

describe('a candidate for jobs of a scheduler', () => {
  function scheduled() {
    const { clock, ours, theirs, messages } = electionFixture();
    let isFiring = true;
    ours.elections.deferUntilFiring('boss', () => isFiring);
    return { clock, ours, theirs, messages, setFiring: (to: boolean) => (isFiring = to) };
  }

  it('does not lead if none of them is fired when it is elected', async () => {
    const { clock, ours, theirs, messages, setFiring } = scheduled();
    const other = theirs.elections.join('boss');
    await clock.advance(0);
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    setFiring(false);
    await other.leave();
    theirs.elections.join('boss');
    await clock.advance(60_000);
    expect(messages('elected').map(({ instance }) => instance)).toEqual(['theirs', 'theirs']);
    expect(candidate.isLeader()).toBe(false);
  });

  it('sends no request to the store while none of them is fired', async () => {
    const { backend, clock, ours } = electionFixture();
    let isFiring = true;
    ours.elections.deferUntilFiring('boss', () => isFiring);
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    isFiring = false;
    await candidate.resign();
    const before = backend.count('acquire');
    await clock.advance(60_000);
    expect(backend.count('acquire')).toBe(before);
    isFiring = true;
    await clock.advance(1_000);
    expect(candidate.isLeader()).toBe(true);
  });

  it('stays leader if they are stopped', async () => {
    const { clock, ours, setFiring } = scheduled();
    const candidate = ours.elections.join('boss');
    await clock.advance(0);
    setFiring(false);
    await clock.advance(60_000);
    expect(candidate.isLeader()).toBe(true);
  });

  it.each(['before', 'after'])(
    'leads for one that was made at run time %s them, until it ends',
    async (when) => {
      const { clock, process } = electionFixture();
      const { locks } = process('late');
      const elections = new Elections(locks);
      const made = { location: 'made', run: () => undefined, isFiring: () => true };
      const ends: (() => void)[] = [];
      if (when === 'before') ends.push(elections.joinForJob('boss', made));
      elections.deferUntilFiring('boss', () => false);
      elections.start();
      if (when === 'after') ends.push(elections.joinForJob('boss', made));
      const candidate = elections.join('boss');
      await clock.advance(0);
      expect(candidate.isLeader()).toBe(true);
      for (const end of ends) end();
      await candidate.resign();
      await clock.advance(60_000);
      expect(candidate.isLeader()).toBe(false);
    },
  );
});

describe('while the store is down', () => {
  it('a new candidate keeps trying, and leads when the store is back', async () => {
    const { backend, clock, ours, messages } = electionFixture();
    const candidate = ours.elections.join('boss');
    backend.next('acquire', { refuse: true }, 1_000);
    await clock.advance(600_000);
    const tries = backend.count('acquire');
    expect(tries).toBeGreaterThan(500);
    expect(tries).toBeLessThan(1_300);
    expect(messages('unavailable')).toHaveLength(tries - (candidate.isLeader() ? 1 : 0));
    await clock.advance(600_000);
    expect(candidate.isLeader()).toBe(true);
  });

  it('a queued candidate stays queued', async () => {
    const { backend, clock, ours, theirs } = electionFixture();
    const [one, two] = [ours.elections.join('boss'), theirs.elections.join('boss')];
    await clock.advance(1_000);
    backend.next('acquire', { refuse: true }, 50);
    await clock.advance(60_000);
    await one.leave();
    await clock.advance(1_000);
    expect(two.isLeader()).toBe(true);
  });

  it('leaves no listeners behind', async () => {
    const { backend, clock, ours } = electionFixture();
    const signals = new Set<AbortSignal>();
    const standFor = ours.locks.leaders.wait.bind(ours.locks.leaders);
    ours.locks.leaders.wait = (election, wish) => {
      signals.add(wish.signal);
      return standFor(election, wish);
    };
    const candidate = ours.elections.join('boss');
    backend.next('acquire', { refuse: true }, 100);
    await clock.advance(120_000);
    expect(candidate.isLeader()).toBe(true);
    const listeners = [...signals].flatMap((signal) => getEventListeners(signal, 'abort'));
    expect(listeners.length).toBeLessThanOrEqual(1);
    expect(getEventListeners(ours.locks.stopping, 'abort')).toHaveLength(1);
  });
});

describe('many elections in one process', () => {
  it('are renewed together, with few timers', async () => {
    const { backend, clock, ours, theirs } = electionFixture();
    for (let index = 0; index < 200; index += 1) {
      ours.elections.join(`boss:${index}`);
      theirs.elections.join(`boss:${index}`);
    }
    await clock.advance(2_000);
    expect(clock.pending).toBeLessThan(20);
    await clock.advance(3_000);
    const before = backend.count('renew');
    await clock.advance(15_000);
    expect(backend.count('renew') - before).toBeLessThan(60);
  });
});

describe('a change of leader', () => {
  const changes = 'nestjs-distributed-lock:leader-changed';

  it('is emitted to all candidates within half a lease', async () => {
    const { clock, ours, theirs, process, messages } = electionFixture({ eventNames: ['leader-changed'] });
    const other = process('other');
    const one = ours.elections.join('boss');
    await clock.advance(0);
    for (const { elections } of [theirs, other]) elections.join('boss');
    await clock.advance(7_000);
    const term = one.term()!.number;
    const first = messages('leader-changed');
    expect(first.map(({ instance }) => instance).sort()).toEqual(['other', 'ours', 'theirs']);
    for (const told of first) expect(told).toMatchObject({ election: 'boss', term, leader: 'ours' });
    await one.leave();
    await clock.advance(8_000);
    const next = messages('leader-changed').slice(3);
    expect(next).toHaveLength(2);
    expect(new Set(next.map(({ leader }) => leader)).size).toBe(1);
  });

  it('is checked only while the event has listeners', async () => {
    const { backend, clock, ours, theirs } = electionFixture();
    let looks = 0;
    const inspect = backend.inspect.bind(backend);
    backend.inspect = (key) => {
      looks += 1;
      return inspect(key);
    };
    ours.elections.join('boss');
    await clock.advance(0);
    theirs.elections.join('boss');
    await clock.advance(60_000);
    expect(looks).toBe(0);
    const listener = () => undefined;
    subscribe(changes, listener);
    await clock.advance(60_000);
    unsubscribe(changes, listener);
    expect(looks).toBeGreaterThanOrEqual(9);
    expect(looks).toBeLessThanOrEqual(12);
  });
});

it('a candidate campaigns only when the application has booted', async () => {
  const { clock, process } = electionFixture();
  const { locks } = process('late');
  const elections = new Elections(locks);
  const candidate = elections.join('boss');
  await clock.advance(10_000);
  expect(candidate.isLeader()).toBe(false);
  expect(await stateOf(candidate.leave())).toBe('fulfilled');
  elections.join('boss');
  elections.start();
  await clock.advance(0);
  expect(elections.currentTerm('boss')).toBeDefined();
});

describe('after a step of the wall clock', () => {
  it('a leader still leads, for callers that wait for the store', async () => {
    const { clock, ours } = electionFixture();
    ours.elections.join('boss');
    await clock.advance(0);
    clock.setWall(clock.wallMs() + 5_000);
    await clock.advance(1);
    expect(await ours.elections.confirmTerm('boss')).toBe(ours.elections.currentTerm('boss'));
    expect(ours.elections.currentTerm('boss')).toBeDefined();
  });

  it('a process that does not lead is not made leader by confirmTerm()', async () => {
    const { clock, ours, theirs } = electionFixture();
    for (const { elections } of [ours, theirs]) {
      elections.join('boss');
      await clock.advance(0);
    }
    clock.setWall(clock.wallMs() + 5_000);
    await clock.advance(1);
    expect(await theirs.elections.confirmTerm('boss')).toBeUndefined();
  });
});
