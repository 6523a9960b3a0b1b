import { type ChannelListener, subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  LockConfigError,
  LockService,
  LockShutdownError,
  SingletonCron,
  currentLock,
} from '../../lib/index.js';
import { LockControl, LockTestingModule, SettableClock } from '../../lib/testing/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

@Injectable()
class Jobs {
  work: (run: CronRun) => unknown = () => undefined;
  starts = 0;

  @SingletonCron('0 3 * * *', { key: 'limited', maxRunMs: 1_000, leaseMs: 500, onDeadRun: 'retry' })
  async limited(run: CronRun): Promise<void> {
    this.starts += 1;
    await this.work(run);
  }
}

@Injectable()
class EverySecond {
  starts = 0;

  @SingletonCron('* * * * * *', { key: 'every-second', maxRunMs: 50, leaseMs: 2_000 })
  async run(): Promise<void> {
    this.starts += 1;
    if (this.starts === 1) await never();
  }
}

const never = () => new Promise<never>(() => undefined);
const untilAborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));

let app: TestingModule | undefined;
let clock: SettableClock;
let ends: unknown[];
const listen: ChannelListener = (message) => void ends.push(message);

beforeEach(() => {
  ends = [];
  subscribe('nestjs-distributed-lock:tick-ended', listen);
});

afterEach(async () => {
  unsubscribe('nestjs-distributed-lock:tick-ended', listen);
  await app?.close();
});

async function boot() {
  clock = new SettableClock();
  app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot({ clock, shutdown: { drainMs: 0, abortGraceMs: 0 } })],
    providers: [Jobs],
  }).compile();
  await app.init();
  return { jobs: app.get(Jobs), control: app.get(LockControl) };
}

it('the signal of a run aborts when its time is over, and its outcome is timed-out', async () => {
  const { jobs, control } = await boot();
  let signal: AbortSignal | undefined;
  jobs.work = (run) => untilAborted((signal = run.signal));
  const running = control.fire('limited');
  await until(() => jobs.starts === 1);
  await clock.advance(999);
  expect(signal?.aborted).toBe(false);
  const failed = expect(running).rejects.toMatchObject({ name: 'TimeoutError' });
  await clock.advance(1);
  await failed;
  expect(ends).toMatchObject([{ job: 'limited', outcome: 'timed-out', durationMs: 1_000 }]);
  const { runs } = await app!.get(CronRuns).history('limited');
  expect(runs[0]).toMatchObject({ outcome: 'timed-out', error: expect.stringContaining('maxRunMs') });
});

it('a run that returns after its time is timed-out too, and the caller gets its value', async () => {
  const { jobs, control } = await boot();
  jobs.work = ({ signal }) => untilAborted(signal).catch(() => undefined);
  const running = control.fire('limited');
  await until(() => jobs.starts === 1);
  await clock.advance(1_000);
  await running;
  expect(ends).toMatchObject([{ outcome: 'timed-out', error: { name: 'TimeoutError' } }]);
});

it('a run that is over time when the application shuts down is timed-out, so it is not retried', async () => {
  const { jobs, control } = await boot();
  const locks = app!.get(LockService);
  let closing: Promise<void> | undefined;
  jobs.work = async ({ signal }) => {
    await untilAborted(signal).catch(() => undefined);
    closing = app!.close();
    await until(async () => (await locks.acquire('step').catch((error: unknown) => error)) instanceof Error);
    await locks.acquire('step');
  };
  const failed = expect(control.fire('limited')).rejects.toThrow(LockShutdownError);
  await until(() => jobs.starts === 1);
  await clock.advance(1_000);
  await failed;
  await closing;
  expect(ends).toMatchObject([{ job: 'limited', outcome: 'timed-out' }]);
});

it('a run that ignores its signal is given up a lease later, and the job runs again', async () => {
  const { jobs, control } = await boot();
  jobs.work = never;
  const running = control.fire('limited');
  const failed = expect(running).rejects.toMatchObject({ name: 'TimeoutError' });
  await until(() => jobs.starts === 1);
  await clock.advance(1_499);
  await control.fire('limited');
  expect(jobs.starts).toBe(1);
  await clock.advance(1);
  await failed;
  expect(ends).toMatchObject([{ outcome: 'timed-out', durationMs: 1_500 }]);
  jobs.work = () => undefined;
  await until(async () => {
    await control.fire('limited');
    return jobs.starts === 2;
  });
});

it('work that was given up still finds its lock, which it has lost', async () => {
  const { jobs, control } = await boot();
  const gate = new Gate();
  let check: Promise<void> | undefined;
  jobs.work = () => (check = gate.passed.then(() => currentLock()!.throwIfLost()));
  const running = control.fire('limited');
  const failed = expect(running).rejects.toMatchObject({ name: 'TimeoutError' });
  await until(() => jobs.starts === 1);
  await clock.advance(1_500);
  await failed;
  gate.open();
  await expect(check).rejects.toThrow('released');
  expect(currentLock()).toBeUndefined();
});

it('a run that ends in time is left alone', async () => {
  const { jobs, control } = await boot();
  let signal: AbortSignal | undefined;
  jobs.work = (run) => void (signal = run.signal);
  await control.fire('limited');
  await clock.advance(2_000);
  expect(signal?.aborted).toBe(false);
  expect(ends).toMatchObject([{ outcome: 'completed' }]);
});

it('the next tick runs after a run that never ends', async () => {
  app = await Test.createTestingModule({
    imports: [ScheduleModule.forRoot(), DistributedLockModule.forRoot({ backend: memoryBackend() })],
    providers: [EverySecond],
  }).compile();
  app.useLogger(false);
  await app.init();
  const jobs = app.get(EverySecond);
  await until(() => jobs.starts > 1);
  expect(ends[0]).toMatchObject({ job: 'every-second', outcome: 'timed-out' });
});

it.each([0, -1, 1.5, '10s'])('maxRunMs: %j is refused', (maxRunMs) => {
  const decorate = () =>
    SingletonCron('* * * * *', { maxRunMs: maxRunMs as number })(Jobs.prototype, 'limited', {
      value: async () => undefined,
    });
  expect(decorate).toThrow(LockConfigError);
});
