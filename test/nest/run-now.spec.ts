import { type ChannelListener, subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Injectable, Logger } from '@nestjs/common';
import { Interval, ScheduleModule, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { jobStoreKey, manualStoreKey } from '../../lib/core/store-key.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  LockConfigError,
  LockShutdownError,
  LockUnavailableError,
  SingletonCron,
  currentLock,
  LockService,
} from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/settable-clock.js';
import { SwitchableBackend } from '../../lib/testing/switchable-backend.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

/** A decorator that can switch the method off. */
const switches = { isOff: false, error: undefined as Error | undefined };
const Switchable: MethodDecorator = (_target, _name, descriptor: PropertyDescriptor) => {
  const method = descriptor.value as (...parameters: unknown[]) => unknown;
  const replaced = function (this: unknown, ...parameters: unknown[]) {
    if (switches.error) throw switches.error;
    return switches.isOff ? undefined : method.apply(this, parameters);
  };
  for (const key of Reflect.getMetadataKeys(method) as unknown[])
    Reflect.defineMetadata(key, Reflect.getMetadata(key, method), replaced);
  descriptor.value = replaced;
};

@Injectable()
class Jobs {
  readonly runs: CronRun[] = [];
  work: (run: CronRun) => unknown = () => undefined;

  @Switchable
  @SingletonCron('0 3 1 1 *', { key: 'yearly', maxRunMs: 50, leaseMs: 500, timeZone: 'Europe/Berlin' })
  async yearly(run: CronRun): Promise<void> {
    this.runs.push(run);
    await this.work(run);
  }

  @SingletonCron('0 3 1 1 *', { key: 'brief', leaseMs: 300 })
  async brief(run: CronRun): Promise<void> {
    this.runs.push(run);
    await this.work(run);
  }

  @SingletonCron('0 3 1 1 *', { key: 'beside', overlap: 'allow' })
  beside(run: CronRun): void {
    this.runs.push(run);
  }

  @SingletonCron({ key: 'led', leader: 'boss' })
  @Interval(3_600_000)
  led(run: CronRun): void {
    this.runs.push(run);
  }

  @SingletonCron({ key: 'deployed', deployKey: '1' })
  @Timeout(3_600_000)
  deployed(): void {}
}

const apps: TestingModule[] = [];
let events: { name: string }[];
const listen: ChannelListener = (message, name) =>
  void events.push({ name: String(name).split(':')[1]!, ...(message as object) });
const CHANNELS = ['tick-claimed', 'tick-started', 'tick-ended', 'tick-skipped'].map(
  (event) => `nestjs-distributed-lock:${event}`,
);

beforeEach(() => {
  events = [];
  for (const name of CHANNELS) subscribe(name, listen);
  Logger.overrideLogger(false);
});
afterEach(async () => {
  switches.isOff = false;
  switches.error = undefined;
  for (const name of CHANNELS) unsubscribe(name, listen);
  for (const app of apps.splice(0)) await app.close();
  Logger.overrideLogger(true);
});

/** The methods of a backend before a test replaces them. */
const bound = (backend: MemoryBackend) => ({
  execute: backend.execute.bind<MemoryBackend['execute']>(backend),
  appendHistory: backend.appendHistory.bind<MemoryBackend['appendHistory']>(backend),
  readHistory: backend.readHistory.bind<MemoryBackend['readHistory']>(backend),
});

async function boot<Backend extends LockBackend = MemoryBackend>(
  backend = new MemoryBackend() as LockBackend as Backend,
  jobs: object = {},
  instance = 'one',
  { drainMs = 0 }: { readonly drainMs?: number } = {},
) {
  const shutdown = { drainMs, abortGraceMs: 0 };
  const app = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({ backend, instance, shutdown, jobs: jobs as never }),
      ScheduleModule.forRoot(),
    ],
    providers: [Jobs],
  }).compile();
  apps.push(app);
  await app.init();
  return { app, jobs: app.get(Jobs), cronRuns: app.get(CronRuns), backend };
}

describe('CronRuns.runNow', () => {
  it('has the events and the history of any run, a lock context of its own, and no planned tick', async () => {
    const { app, jobs, cronRuns } = await boot();
    let outer: unknown;
    jobs.work = () => (outer = currentLock()?.key);
    const before = Date.now();
    const record = await app.get(LockService).withLock('outer', () => cronRuns.runNow('yearly'));
    expect(outer).toBe('yearly');
    const [run] = jobs.runs as [CronRun];
    expect(run.tick.getTime()).toBeGreaterThanOrEqual(before);
    expect(record).toMatchObject({ tick: run.tick, attempt: 1, isManual: true, outcome: 'completed' });
    expect(events.map(({ name }) => name)).toEqual(['tick-claimed', 'tick-started', 'tick-ended']);
    expect((await cronRuns.history('yearly')).runs).toEqual([record]);
    expect(JSON.parse(JSON.stringify(record))).toMatchObject({ fencingToken: String(run.fencingToken) });
  });

  it('resolves with the record of a run that throws', async () => {
    const { jobs, cronRuns } = await boot();
    jobs.work = () => Promise.reject(new Error('no paper'));
    expect(await cronRuns.runNow('yearly')).toMatchObject({ outcome: 'failed', error: 'no paper' });
  });

  it('resolves with as much of an error as the history keeps', async () => {
    const { jobs, cronRuns } = await boot();
    jobs.work = () => Promise.reject(new Error('no paper. '.repeat(1_000)));
    const record = await cronRuns.runNow('yearly');
    expect(record.error).toHaveLength(150);
    expect((await cronRuns.history('yearly')).runs).toEqual([record]);
  });

  it('keeps to maxRunMs', async () => {
    const { jobs, cronRuns } = await boot();
    jobs.work = () => new Promise(() => undefined);
    expect(await cronRuns.runNow('yearly')).toMatchObject({ outcome: 'timed-out' });
    jobs.work = () => undefined;
    expect(await cronRuns.runNow('yearly')).toMatchObject({ outcome: 'completed' });
  });

  it('runs a job that is paused or disabled', async () => {
    const { jobs, cronRuns } = await boot(new MemoryBackend(), { yearly: { disabled: true } });
    await cronRuns.pause('yearly');
    expect(await cronRuns.runNow('yearly')).toMatchObject({ outcome: 'completed' });
    expect(jobs.runs).toHaveLength(1);
    expect(await cronRuns.jobs()).toContainEqual(
      expect.objectContaining({ key: 'yearly', isPaused: true, isFiring: false, missedTick: null }),
    );
  });

  it('runs a job with a leader in the leader only', async () => {
    const backend = new MemoryBackend();
    const replicas = [await boot(backend), await boot(backend)];
    const outcomes = () =>
      Promise.all(
        replicas.map(({ cronRuns }) =>
          cronRuns.runNow('led').then(
            ({ outcome }) => outcome,
            (error: unknown) => error,
          ),
        ),
      );
    await until(async () => (await outcomes()).includes('completed'));
    const [error] = (await outcomes()).filter((outcome) => outcome !== 'completed');
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toContain('expected the process that leads "boss"');
  });

  it('rejects an unknown key, a job that runs once for each deployment, and a method that is not called', async () => {
    const { cronRuns } = await boot();
    await expect(cronRuns.runNow('other')).rejects.toThrow(LockConfigError);
    await expect(cronRuns.runNow('deployed')).rejects.toThrow('once for each deployKey');
    switches.isOff = true;
    await expect(cronRuns.runNow('yearly')).rejects.toThrow('none did');
    switches.error = new Error('database is down');
    await expect(cronRuns.runNow('yearly')).rejects.toBe(switches.error);
  });

  it('publishes the loss and the release of the lock of the run, and not of the one that keeps other calls out', async () => {
    const { jobs, cronRuns, backend } = await boot();
    const ended: [string, bigint][] = [];
    const channels = ['lost', 'released'].map((name) => `nestjs-distributed-lock:${name}`);
    const onEnd: ChannelListener = (message, name) =>
      void ended.push([String(name).split(':')[1]!, (message as { fencingToken: bigint }).fencingToken]);
    for (const name of channels) subscribe(name, onEnd);
    const keys = [jobStoreKey('lock', 'brief'), manualStoreKey('lock', 'brief')];
    jobs.work = async ({ signal }) => {
      const records = await Promise.all(keys.map((key) => backend.inspect(key)));
      const tokens = records.map((record) => record!.fencingToken);
      for (const [index, key] of keys.entries()) await backend.forceRelease(key, tokens[index]!);
      await until(() => signal.aborted);
    };
    await cronRuns.runNow('brief');
    jobs.work = () => undefined;
    await cronRuns.runNow('brief');
    for (const name of channels) unsubscribe(name, onEnd);
    const [lost, completed] = jobs.runs as [CronRun, CronRun];
    expect(ended).toEqual([
      ['lost', lost.fencingToken],
      ['released', completed.fencingToken],
    ]);
  });

  it('rejects if the store does not answer, and then has not run', async () => {
    const { jobs, cronRuns, backend } = await boot();
    backend.readTicks = () => Promise.reject(new Error('down'));
    await expect(cronRuns.runNow('yearly')).rejects.toThrow(LockUnavailableError);
    expect(jobs.runs).toEqual([]);
  });

  it.each(['yearly', 'beside'])(
    'begins no run of %s during the shutdown, also if the store answers late',
    async (key) => {
      const { app, jobs, cronRuns, backend } = await boot(new MemoryBackend(), {}, 'one', {
        drainMs: 60_000,
      });
      const locks = app.get(LockService);
      // The shutdown waits for it.
      const held = await locks.acquire('other');
      const [asked, answer] = [new Gate(), new Gate()];
      const readTicks = backend.readTicks.bind(backend);
      backend.readTicks = async (...parameters) => {
        asked.open();
        await answer.passed;
        return readTicks(...parameters);
      };
      const call = expect(cronRuns.runNow(key)).rejects.toThrow(LockShutdownError);
      await asked.passed;
      const closing = app.close();
      const isStopping = () =>
        locks.tryAcquire('another').then(
          (lock) => lock?.release().then(() => false),
          (error: unknown) => error instanceof LockShutdownError,
        );
      await until(async () => (await isStopping()) === true);
      answer.open();
      await call;
      await held.release();
      await closing;
      await expect(cronRuns.runNow(key)).rejects.toThrow(LockShutdownError);
      expect(jobs.runs).toEqual([]);
    },
  );

  it('returns the run of the call that was first, not an older one, also if the history gets it late', async () => {
    const backend = new MemoryBackend();
    const [one, two] = [await boot(backend, {}, 'one'), await boot(backend, {}, 'two')];
    one.jobs.work = () => Promise.reject(new Error('the older run'));
    expect(await one.cronRuns.runNow('yearly')).toMatchObject({ outcome: 'failed' });
    one.jobs.work = () => undefined;
    const [hasRead, claims, writes] = [new Gate(), new Gate(), new Gate()];
    const { execute, appendHistory, readHistory } = bound(backend);
    backend.execute = async (requests) => {
      if (requests.acquire?.[0]?.instance === 'two') {
        hasRead.open();
        await claims.passed;
      }
      return execute(requests);
    };
    backend.appendHistory = async (...parameters) => {
      await writes.passed;
      return appendHistory(...parameters);
    };
    const call = two.cronRuns.runNow('yearly');
    await hasRead.passed;
    const record = await one.cronRuns.runNow('yearly');
    expect(record).toMatchObject({ outcome: 'completed', instance: 'one' });
    let reads = 0;
    backend.readHistory = (...parameters) => {
      // The second look finds the entry.
      if ((reads += 1) === 2) writes.open();
      return readHistory(...parameters);
    };
    claims.open();
    expect(await call).toMatchObject({ fencingToken: record.fencingToken, instance: 'one', error: null });
    expect(two.jobs.runs).toEqual([]);
  });

  it('is not kept waiting for a whole lease by a process that died before its run began', async () => {
    const clock = new SettableClock();
    const backend = new MemoryBackend({ clock });
    const network = new SwitchableBackend(backend);
    const [dying, ours] = [await boot(network, {}, 'dying'), await boot(backend, {}, 'ours')];
    const guard = ({ cronRuns }: Pick<typeof ours, 'cronRuns'>, work: () => void) =>
      cronRuns.guard('long', { everyMs: 3_600_000, leaseMs: 600_000 }, work);
    const ran: string[] = [];
    guard(dying, () => void ran.push('dying'));
    guard(ours, () => void ran.push('ours'));
    const isDead = new Gate();
    const execute = network.execute.bind(network);
    let claims = 0;
    network.execute = (requests, timeoutMs) => {
      // Nothing of it arrives any more, from its second claim on.
      if (requests.acquire && (claims += 1) === 2) network.isReachable = false;
      if (!network.isReachable) isDead.open();
      return execute(requests, timeoutMs);
    };
    dying.cronRuns.runNow('long').catch(() => undefined);
    await isDead.passed;
    const refused = expect(ours.cronRuns.runNow('long')).rejects.toThrow(LockUnavailableError);
    const state = { hasEnded: false };
    void refused.then(() => (state.hasEnded = true));
    for (let passedMs = 0; passedMs < 20_000 && !state.hasEnded; passedMs += 50) await clock.advance(50);
    expect(state.hasEnded).toBe(true);
    expect(ran).toEqual([]);
    expect(await ours.cronRuns.runNow('long')).toMatchObject({ outcome: 'completed' });
    expect(ran).toEqual(['ours']);
    const closing = Promise.all(apps.splice(0).map((app) => app.close()));
    for (let seconds = 0; seconds < 60; seconds += 1) await clock.advance(1_000);
    await closing;
  });

  it('a run that closes the application does not wait for itself', async () => {
    const store = new MemoryBackend();
    const { app, jobs, cronRuns } = await boot(store, {}, 'one', { drainMs: 600_000 });
    let hasClosed = false;
    jobs.work = async () => {
      await app.close();
      hasClosed = true;
    };
    await cronRuns.runNow('yearly');
    expect(hasClosed).toBe(true);
    await until(() => Promise.resolve(store.size === 0));
  });

  it('leaves a dead run of the schedule to be retried', async () => {
    const { cronRuns, backend } = await boot();
    const storeKey = 'lock/job:yearly';
    const tick = { tickMs: Date.now(), maxEarlyMs: 0, staleAfterMs: 60_000, maxAttempts: 2 };
    const dead = { key: storeKey, holder: 'dead', instance: 'gone', leaseMs: 20, tick };
    await backend.execute({ acquire: [dead] });
    await until(async () => (await backend.inspect(storeKey)) === null);
    expect(await cronRuns.runNow('yearly')).toMatchObject({ outcome: 'completed' });
    expect(await backend.readTicks(storeKey)).toMatchObject({ claimed: { tickMs: tick.tickMs, attempt: 1 } });
  });

  it('reports the tick that nobody has run', async () => {
    const { cronRuns, backend } = await boot();
    const missedOf = async () => (await cronRuns.jobs()).find(({ key }) => key === 'yearly')!.missedTick;
    expect(await missedOf()).toBeNull();
    const storeKey = 'lock/job:yearly';
    const tick = { tickMs: 1_000, maxEarlyMs: 0, staleAfterMs: Number.MAX_SAFE_INTEGER };
    const id = { key: storeKey, holder: 'h', instance: 'i', leaseMs: 60_000 };
    const { acquire } = await backend.execute({ acquire: [{ ...id, tick }] });
    expect(acquire).toMatchObject([{ kind: 'granted' }]);
    const missed = await missedOf();
    expect(missed?.toISOString()).toMatch(/-01-01T02:00:00.000Z$/);
    await cronRuns.pause('yearly');
    expect(await missedOf()).toBeNull();
  });
});
