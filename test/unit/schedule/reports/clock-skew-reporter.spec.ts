import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Logger } from '@nestjs/common';
import type { Clock } from '../../../../lib/core/clock.js';
import { LockHandle } from '../../../../lib/core/leases/lock-handle.js';
import type { Locks } from '../../../../lib/core/locks.js';
import { Elections } from '../../../../lib/election/elections.js';
import { JobRunner } from '../../../../lib/schedule/job-runner.js';
import type { Job, JobOptions } from '../../../../lib/schedule/job.js';
import { type Plan, createCronPlan, createIntervalPlan } from '../../../../lib/schedule/plan/plan.js';
import { lockFixture, locksOn } from '../../core/lock-fixture.js';
import type { ScriptedBackend } from '../../scripted-backend.js';

const HOUR_MS = 60 * 60 * 1_000;
const MINUTELY = () => createCronPlan({ cronTime: '* * * * *', timeZone: 'UTC' });

const warnings: unknown[] = [];
beforeEach(() => {
  warnings.length = 0;
  Logger.overrideLogger({
    ...{ log: () => undefined, error: () => undefined },
    warn: (text: unknown) => warnings.push(text),
  });
});
afterEach(() => {
  Logger.overrideLogger(true);
});

interface Given {
  readonly plan?: Plan;
  readonly options?: JobOptions;
  readonly ran?: Date[];
}

function replica(locks: Locks, { plan = MINUTELY(), options = {}, ran = [] }: Given = {}) {
  const runner = new JobRunner({ locks, elections: new Elections(locks) });
  const job: Job = {
    ...{ key: 'job', plan, options, isFiring: () => true },
    ...{ schedule: { text: 'test', timeZone: null }, invoke: () => undefined, onError: () => undefined },
  };
  return runner.guard(job, ({ tick }) => ran.push(tick));
}

/** Claims a tick like a replica while the store's clock is ahead by this much. */
async function runAhead(locks: Locks, aheadMs: number): Promise<void> {
  const tick = { tickMs: locks.clock.wallMs() + aheadMs, maxEarlyMs: aheadMs, staleAfterMs: aheadMs };
  const handle = await locks.jobs.claimTick('job', { tick });
  if (!(handle instanceof LockHandle)) throw new Error(`expected a grant, got ${handle.kind}`);
  handle.endRun();
  await handle.release();
}

/** The store as seen by a process whose clock is ahead of the store's. */
function seenAhead(backend: ScriptedBackend, aheadMs: number): ScriptedBackend {
  const of = <Target extends object>(target: Target, changed: Partial<Target>): Target =>
    new Proxy(target, {
      get: (_, name) => {
        if (name in changed) return changed[name as keyof Target] as unknown;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  const { clock } = backend;
  return of(backend, { clock: of<Clock>(clock, { wallMs: () => clock.wallMs() + aheadMs }) });
}

describe('a job whose newest claimed tick is later than the clock of the store', () => {
  it('causes one warning in each replica, and runs when the clock has caught up', async () => {
    const { clock, ours } = lockFixture();
    const ran: Date[] = [];
    await runAhead(ours, HOUR_MS);
    const { fire } = replica(ours, { ran });
    for (let minute = 0; minute < 50; minute += 1) {
      await clock.advance(60_000);
      await fire();
    }
    await clock.advance(10);
    expect(ran).toEqual([]);
    expect(warnings).toEqual([expect.stringMatching(/^Ticks of the job "job" are skipped.*give the job/)]);
    await clock.advance(11 * 60_000);
    await fire();
    expect(ran).toHaveLength(1);
  });

  it('causes a warning if that happens after many regular ticks', async () => {
    const { clock, ours, theirs } = lockFixture();
    const [{ fire }, { fire: fireOther }] = [replica(ours), replica(theirs)];
    for (let minute = 0; minute < 15; minute += 1) {
      await clock.advance(60_000);
      await Promise.all([fire(), fireOther()]);
    }
    expect(warnings).toEqual([]);
    await runAhead(ours, HOUR_MS);
    for (let minute = 0; minute < 15; minute += 1) {
      await clock.advance(60_000);
      await fire();
    }
    await clock.advance(10);
    expect(warnings).toHaveLength(1);
  });

  it('causes no warning for a tick that another replica runs, nor if ticks may overlap', async () => {
    const { clock, ours, theirs } = lockFixture();
    const [plan, options] = [createIntervalPlan(100), { maxEarlyMs: 50 }];
    for (const each of [options, { ...options, overlap: 'allow' } satisfies JobOptions]) {
      const fires = [ours, theirs].map((locks) => replica(locks, { plan, options: each }).fire);
      for (let tick = 0; tick < 50; tick += 1) {
        await clock.advance(100);
        await Promise.all(fires.map((fire) => fire()));
      }
    }
    await clock.advance(10);
    expect(warnings).toEqual([]);
  });
});

describe('a process whose clock is ahead of the store', () => {
  const fireAhead = async (aheadMs: number, plan: () => Plan) => {
    const { clock, backend } = lockFixture();
    const locks = locksOn(seenAhead(backend, aheadMs), 'ahead');
    const ran: Date[] = [];
    const { fire } = replica(locks, { plan: plan(), ran });
    await clock.advance(60_000 - (aheadMs % 60_000)); // Its timers fire at whole minutes of its own clock.
    for (let minute = 0; minute < 3; minute += 1) {
      await clock.advance(60_000);
      void fire();
    }
    await clock.advance(HOUR_MS);
    return ran;
  };

  it('by minutes runs its ticks when they are due, and logs one warning', async () => {
    expect(await fireAhead(10 * 60_000, MINUTELY)).toHaveLength(3);
    expect(warnings).toEqual([expect.stringMatching(/clock of this process is 10 minutes ahead/)]);
  });

  it('by seconds logs no warning', async () => {
    expect(await fireAhead(20_000, MINUTELY)).toHaveLength(3);
    expect(warnings).toEqual([]);
  });
});

describe('a process whose clock is behind the store', () => {
  const fireBehind = async (behindMs: number) => {
    const { clock, backend } = lockFixture();
    const locks = locksOn(seenAhead(backend, -behindMs), 'behind');
    const { fire } = replica(locks, { plan: createIntervalPlan(1_000) });
    for (let second = 0; second < 3; second += 1) {
      await clock.advance(1_000);
      await fire();
    }
  };

  it('by so much that its ticks are stale logs one warning', async () => {
    await fireBehind(10 * 60_000);
    expect(warnings).toEqual([expect.stringMatching(/clock of this process is 10 minutes behind/)]);
  });

  it('by seconds logs no warning', async () => {
    await fireBehind(20_000);
    expect(warnings).toEqual([]);
  });
});
