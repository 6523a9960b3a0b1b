import { type ChannelListener, subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Injectable, Logger } from '@nestjs/common';
import { Interval, ScheduleModule, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  LockConfigError,
  type LockEventMessage,
  SingletonCron,
} from '../../lib/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

const EACH_SECOND = '* * * * * *';

@Injectable()
class Jobs {
  readonly runs: string[] = [];
  work: (run: CronRun) => unknown = () => undefined;

  @SingletonCron(EACH_SECOND, { key: 'second', onMissed: 'once' })
  async second(run: CronRun): Promise<void> {
    this.runs.push('second');
    await this.work(run);
  }

  @SingletonCron({ key: 'overlapping', overlap: 'allow' })
  @Interval(200)
  overlapping(): void {
    this.runs.push('overlapping');
  }

  @SingletonCron({ key: 'led', leader: 'boss' })
  @Interval(200)
  led(): void {
    this.runs.push('led');
  }

  @SingletonCron({ key: 'deployed', deployKey: '1' })
  @Timeout(500)
  deployed(): void {
    this.runs.push('deployed');
  }
}

const apps: TestingModule[] = [];
let skipped: LockEventMessage<'tick-skipped'>[];
const listen: ChannelListener = (message) => void skipped.push(message as LockEventMessage<'tick-skipped'>);

beforeEach(() => {
  skipped = [];
  subscribe('nestjs-distributed-lock:tick-skipped', listen);
});

afterEach(async () => {
  unsubscribe('nestjs-distributed-lock:tick-skipped', listen);
  for (const app of apps.splice(0)) await app.close();
});

async function boot(backend: MemoryBackend): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend }), ScheduleModule.forRoot()],
    providers: [Jobs],
  }).compile();
  apps.push(app);
  return app.init();
}

const pausedTicksOf = (key: string) =>
  skipped.filter(({ job, reason }) => job === key && reason === 'paused').length;
const KEYS = ['second', 'overlapping', 'led', 'deployed'];

it('ticks of a paused job are skipped in all replicas, whatever the job is', async () => {
  const backend = new MemoryBackend();
  const replicas = [await boot(backend), await boot(backend)];
  for (const key of KEYS) await replicas[0]!.get(CronRuns).pause(key);
  for (const app of replicas) app.get(Jobs).runs.length = 0;
  await until(() => pausedTicksOf('second') >= 4 && pausedTicksOf('overlapping') >= 4);
  await until(() => pausedTicksOf('led') >= 1 && pausedTicksOf('deployed') >= 2);
  expect(replicas.flatMap((app) => app.get(Jobs).runs)).toEqual([]);
  for (const key of KEYS) await replicas[1]!.get(CronRuns).resume(key);
  const all = () => replicas.flatMap((app) => app.get(Jobs).runs);
  await until(() => ['second', 'overlapping', 'led'].every((key) => all().includes(key)));
});

it('a pause survives a restart of all replicas, and its ticks are not run as missed', async () => {
  const backend = new MemoryBackend();
  const first = await boot(backend);
  await until(() => first.get(Jobs).runs.includes('second'));
  await first.get(CronRuns).pause('second');
  await first.close();
  const app = await boot(backend);
  await until(() => pausedTicksOf('second') >= 2);
  expect(app.get(Jobs).runs).not.toContain('second');
  const resumedAtMs = Date.now();
  const ticks: number[] = [];
  app.get(Jobs).work = ({ tick }) => ticks.push(tick.getTime());
  await app.get(CronRuns).resume('second');
  await until(() => ticks.length > 0);
  expect(ticks[0]).toBeGreaterThan(resumedAtMs - 1);
});

it('a pause is in the history, and each process logs it once', async () => {
  const app = await boot(new MemoryBackend());
  const logs: unknown[] = [];
  Logger.overrideLogger({ log: (text: unknown) => void logs.push(text), warn() {}, error() {} });
  try {
    await app.get(CronRuns).pause('second');
    await until(() => pausedTicksOf('second') >= 2);
    expect(await app.get(CronRuns).history('second')).toMatchObject({ isPaused: true });
    expect(logs.filter((text) => /"second" is paused/.test(String(text)))).toHaveLength(1);
    await app.get(CronRuns).resume('second');
    expect(await app.get(CronRuns).history('second')).toMatchObject({ isPaused: false });
  } finally {
    Logger.overrideLogger(true);
  }
});

it('a pause during a run lets that run end', async () => {
  const app = await boot(new MemoryBackend());
  const [jobs, runs] = [app.get(Jobs), app.get(CronRuns)];
  const gate = new Gate();
  let signal: AbortSignal | undefined;
  jobs.work = async (run) => {
    signal = run.signal;
    await gate.passed;
  };
  await until(() => signal !== undefined);
  await runs.pause('second');
  await until(() => pausedTicksOf('second') > 0);
  expect(signal?.aborted).toBe(false);
  gate.open();
  await until(async () => (await runs.history('second')).runs[0]?.outcome === 'completed');
  const runCount = jobs.runs.filter((run) => run === 'second').length;
  const before = pausedTicksOf('second');
  await until(() => pausedTicksOf('second') > before);
  expect(jobs.runs.filter((run) => run === 'second')).toHaveLength(runCount);
});

it('a key without a job here is refused', async () => {
  const runs = (await boot(new MemoryBackend())).get(CronRuns);
  await expect(runs.pause('other')).rejects.toThrow(LockConfigError);
  await expect(runs.resume('other')).rejects.toThrow(/'other'.*It has 'second', 'overlapping'/);
});
