import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, it } from 'vitest';
import { ScheduleModule } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  CronRuns,
  DistributedLockModule,
  type GuardOptions,
  type GuardedTick,
  LeaderElection,
} from '../../lib/index.js';
import { Elections } from '../../lib/election/elections.js';
import { until } from '../support/until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(warnings: unknown[] = []): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: new MemoryBackend() }), ScheduleModule.forRoot()],
  })
    .setLogger({ log: () => undefined, warn: (text: unknown) => warnings.push(text), error: () => undefined })
    .compile();
  closing.push(app);
  return app.init();
}

const HOURLY: GuardOptions = { cronTime: '0 * * * *' };

/** Settles when the process that leads `boss`, or led it, has been revoked. */
async function revokedBy(act: () => void): Promise<void> {
  let isRevoked = false;
  const note = () => (isRevoked = true);
  subscribe('nestjs-distributed-lock:revoked', note);
  try {
    act();
    await until(() => isRevoked);
  } finally {
    unsubscribe('nestjs-distributed-lock:revoked', note);
  }
}

const elected = async (work: () => unknown): Promise<void> => {
  let isElected = false;
  const note = () => (isElected = true);
  subscribe('nestjs-distributed-lock:elected', note);
  await work();
  await until(() => isElected);
  unsubscribe('nestjs-distributed-lock:elected', note);
};

/** In a separate function, because a suspended function keeps its variables alive. */
function guardMany(runs: CronRuns, letGo: (onTick: Disposable) => void): WeakRef<object>[] {
  return Array.from({ length: 10_000 }, (_, number) => {
    const body = () => number;
    // Every second guard replaces the one before it.
    const key = `reminder:${Math.floor(number / 2)}`;
    letGo(runs.guard(key, { everyMs: 60_000 }, body));
    return new WeakRef(body);
  });
}

/** In a separate function for the same reason. Returns what the jobs have put into their election. */
function guardLed(app: TestingModule, letGo: (runs: CronRuns, key: string) => void): WeakRef<object>[] {
  const elections = app.get(Elections, { strict: false });
  const runs = app.get(CronRuns);
  const join = elections.joinForJob.bind(elections);
  const handlers: WeakRef<object>[] = [];
  elections.joinForJob = (name, handler) => {
    handlers.push(new WeakRef(handler));
    return join(name, handler);
  };
  for (let number = 0; number < 100; number += 1) letGo(runs, `led:${number}`);
  return handlers;
}

/** In a separate function for the same reason. Returns the contexts of the callers. */
function joinMany(elections: LeaderElection): WeakRef<object>[] {
  const storage = new AsyncLocalStorage<object>();
  return Array.from({ length: 100 }, (_, number) => {
    const context = {};
    storage.run(context, () => elections.join(`tenant:${number}`));
    return new WeakRef(context);
  });
}

const LED: GuardOptions = { everyMs: 60_000, leader: 'boss' };

describe('a job created at run time that is disposed of', () => {
  it('runs nothing any more, and is no longer a job of this process', async () => {
    const runs = (await boot()).get(CronRuns);
    let ran = 0;
    const onTick = runs.guard('reminder', HOURLY, () => (ran += 1));
    await onTick();
    onTick[Symbol.dispose]();
    await onTick();
    expect(ran).toBe(1);
    expect(await runs.history('reminder')).toMatchObject({ nextTick: null });
  });

  it('leaves its election with the last of its jobs', async () => {
    const runs = (await boot()).get(CronRuns);
    const guard = (key: string) => runs.guard(key, { ...HOURLY, leader: 'boss' }, () => undefined);
    const jobs = [guard('one'), guard('two')];
    await elected(() => undefined);
    jobs[0]![Symbol.dispose]();
    jobs[0]![Symbol.dispose]();
    await jobs[1]!();
    expect((await runs.history('two')).runs).toHaveLength(1);
    await revokedBy(() => jobs[1]![Symbol.dispose]());
  });

  it('does not leave an election that the process has joined itself', async () => {
    const app = await boot();
    const job = app.get(CronRuns).guard('one', { ...HOURLY, leader: 'boss' }, () => undefined);
    const candidate = app.get(LeaderElection).join('boss');
    await until(() => candidate.isLeader());
    job[Symbol.dispose]();
    expect(candidate.isLeader()).toBe(true);
  });

  it('is replaced by another guard of its key, and then runs nothing', async () => {
    const runs = (await boot()).get(CronRuns);
    const ran: string[] = [];
    const before = runs.guard('reminder', HOURLY, () => ran.push('before'));
    const after = runs.guard('reminder', HOURLY, () => ran.push('after'));
    before[Symbol.dispose]();
    await before();
    await after();
    expect(ran).toEqual(['after']);
  });

  it('stays leader when its key is guarded again', async () => {
    const runs = (await boot()).get(CronRuns);
    const guard = () => runs.guard('reminder', { ...HOURLY, leader: 'boss' }, () => undefined);
    let before: GuardedTick | undefined;
    await elected(() => (before = guard()));
    let revocations = 0;
    const note = () => (revocations += 1);
    subscribe('nestjs-distributed-lock:revoked', note);
    const after = guard();
    await after();
    expect((await runs.history('reminder')).runs).toHaveLength(1);
    unsubscribe('nestjs-distributed-lock:revoked', note);
    expect(revocations).toBe(0);
    before![Symbol.dispose]();
    await revokedBy(() => after[Symbol.dispose]());
  });

  it('logs one warning if it is replaced without being disposed of, and still called', async () => {
    const warnings: unknown[] = [];
    const runs = (await boot(warnings)).get(CronRuns);
    const guard = () => runs.guard('reminder', HOURLY, () => undefined);
    const [before, disposed, after] = [guard(), guard(), guard()];
    disposed[Symbol.dispose]();
    for (const onTick of [after, disposed, before, before]) await onTick();
    expect(warnings).toEqual([expect.stringMatching(/guard\('reminder'\) was called again/)]);
    after[Symbol.dispose]();
    await after();
    expect(warnings).toHaveLength(1);
  });

  it.each([
    ['is disposed of', (onTick: Disposable) => onTick[Symbol.dispose]()],
    ['is kept by nobody', () => undefined],
  ])('leaves nothing behind when it %s, of 10,000', async (_, letGo) => {
    const bodies = guardMany((await boot()).get(CronRuns), letGo);
    await until(() => {
      collectGarbage();
      return bodies.every((body) => body.deref() === undefined);
    });
  });

  it.each<[string, (runs: CronRuns, key: string) => void]>([
    ['is disposed of', (runs, key) => runs.guard(key, LED, () => undefined)[Symbol.dispose]()],
    ['was replaced', (runs, key) => [1, 2].forEach(() => runs.guard(key, LED, () => undefined))],
  ])('leaves nothing behind in its election when it %s', async (_, letGo) => {
    const app = await boot();
    const handlers = guardLed(app, letGo);
    await until(() => {
      collectGarbage();
      return handlers.every((handler) => handler.deref() === undefined);
    });
    expect(handlers).not.toHaveLength(0);
  });
});

it('a candidate does not keep the asynchronous context in which join was called', async () => {
  const contexts = joinMany((await boot()).get(LeaderElection));
  await until(() => {
    collectGarbage();
    return contexts.every((context) => context.deref() === undefined);
  });
});
