import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, describe, expect, it } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { CronJob, CronTime } from 'cron';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  LockService,
  SingletonCron,
} from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

const EACH_SECOND = '* * * * * *';
const YEAR_MS = 365 * 24 * 60 * 60 * 1_000;

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(
  providers: Type[],
  backend = memoryBackend(),
  jobs: Record<string, { disabled: boolean }> = {},
): Promise<TestingModule> {
  const shutdown = { drainMs: 0, abortGraceMs: 0 };
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend, shutdown, jobs }), ScheduleModule.forRoot()],
    providers,
  })
    .setLogger({ log: () => undefined, warn: () => undefined, error: () => undefined })
    .compile();
  closing.push(app);
  return app.init();
}

/** Waits until this many ticks were skipped because they overlap, unless something else happens first. */
async function skippedTwice(orElse: () => boolean): Promise<void> {
  let count = 0;
  const listen = (message: unknown) => (count += Number((message as { reason: string }).reason !== 'stale'));
  subscribe('nestjs-distributed-lock:tick-skipped', listen);
  await until(() => count >= 2 || orElse());
  unsubscribe('nestjs-distributed-lock:tick-skipped', listen);
}

describe('a timer that a run of the job has set', () => {
  it.each(['setTime()', 'stop() and start()'])(
    'claims its ticks as any other, after %s of a decorated job',
    async (how) => {
      const gate = new Gate();
      @Injectable()
      class Poller {
        readonly given: unknown[] = [];
        constructor(private readonly registry: SchedulerRegistry) {}
        @SingletonCron()
        @Cron(EACH_SECOND, { name: 'poll' })
        async poll(...given: unknown[]): Promise<void> {
          this.given.push(given[0]);
          const job = this.registry.getCronJob('poll');
          if (how === 'setTime()') job.setTime(new CronTime('*/1 * * * * *'));
          else void Promise.resolve(job.stop()).then(() => job.start());
          await gate.passed;
        }
      }
      const app = await boot([Poller]);
      const { given } = app.get(Poller);
      await until(() => given.length > 0);
      await skippedTwice(() => given.length > 1);
      expect(given).toStrictEqual([expect.objectContaining({ attempt: 1 })]);
      gate.open();
    },
  );

  it('claims its ticks like any other, after the job was guarded again', async () => {
    const gate = new Gate();
    const given: unknown[] = [];
    const app = await boot([]);
    const [runs, registry] = [app.get(CronRuns), app.get(SchedulerRegistry)];
    const add = () => {
      const onTick = runs.guard('tenant', { cronTime: EACH_SECOND }, async (run) => {
        given.push(run);
        registry.deleteCronJob('tenant');
        add();
        await gate.passed;
      });
      registry.addCronJob('tenant', CronJob.from({ cronTime: EACH_SECOND, onTick, start: true }));
    };
    add();
    await until(() => given.length > 0);
    await skippedTwice(() => given.length > 1);
    expect(given).toStrictEqual([expect.objectContaining({ attempt: 1 })]);
    gate.open();
  });

  it('begins its runs outside the locks of the run that set it', async () => {
    const gate = new Gate();
    @Injectable()
    class Overlapping {
      readonly joined: boolean[] = [];
      constructor(
        private readonly registry: SchedulerRegistry,
        private readonly locks: LockService,
      ) {}
      @SingletonCron({ overlap: 'allow' })
      @Cron(EACH_SECOND, { name: 'overlapping' })
      async job(): Promise<void> {
        if (this.joined.length > 0) {
          const lock = await this.locks.tryAcquire('stock', { reentrant: true });
          this.joined.push(lock !== null);
          return;
        }
        this.joined.push(false);
        await this.locks.withLock('stock', async () => {
          this.registry.getCronJob('overlapping').setTime(new CronTime('*/1 * * * * *'));
          await gate.passed;
        });
      }
    }
    const app = await boot([Overlapping]);
    await until(() => app.get(Overlapping).joined.length >= 2);
    gate.open();
    expect(app.get(Overlapping).joined).not.toContain(true);
  });
});

describe('a call inside a run', () => {
  it('is part of the run if the method calls itself, or its super class, with its run', async () => {
    @Injectable()
    class Base {
      readonly seen: string[] = [];
      readonly runs = new Set<CronRun>();
      @SingletonCron({ key: 'base' })
      @Interval(1_000_000)
      async job(run: CronRun): Promise<string> {
        this.runs.add(run);
        this.seen.push('base');
        return 'base';
      }
    }
    @Injectable()
    class Nested extends Base {
      left = 2;
      @SingletonCron({ key: 'nested' })
      @Interval(50)
      override async job(run: CronRun): Promise<string> {
        this.runs.add(run);
        this.seen.push(`nested ${this.left}`);
        await Promise.resolve();
        this.left -= 1;
        return this.left > 0 ? this.job(run) : super.job(run);
      }
    }
    const app = await boot([Nested]);
    const { seen, runs } = app.get(Nested);
    await until(() => seen.includes('base'));
    expect(seen.slice(0, 3)).toEqual(['nested 2', 'nested 1', 'base']);
    expect([...runs][0]).toMatchObject({ attempt: 1 });
    expect(seen.length === 3 ? runs.size : 1).toBe(1);
  });

  it('with a run that has ended claims its own tick', async () => {
    @Injectable()
    class Late {
      readonly runs: CronRun[] = [];
      @SingletonCron('0 0 * * *', { timeZone: 'UTC' })
      async job(run: CronRun): Promise<void> {
        this.runs.push(run);
      }
    }
    const app = await boot([Late]);
    const late = app.get(Late);
    await late.job(undefined as never);
    expect(late.runs).toHaveLength(1);
    await late.job(late.runs[0]!);
    expect(late.runs).toHaveLength(1);
  });
});

describe('the asynchronous context of a job that is created at run time', () => {
  const caller = new AsyncLocalStorage<string>();

  it('is not that of its creator when a missed tick is run', async () => {
    const clock = new SettableClock(Date.UTC(2026, 5, 1));
    const backend = memoryBackend({ clock });
    const seen: unknown[] = [];
    const options = { cronTime: '0 0 1 1 *', timeZone: 'UTC', onMissed: 'once' } as const;
    for (const waitMs of [0, YEAR_MS]) {
      await clock.advance(waitMs);
      const app = await boot([], backend);
      caller.run('caller', () =>
        app.get(CronRuns).guard('dynamic', options, () => seen.push(caller.getStore())),
      );
      await clock.advance(0);
    }
    expect(seen).toEqual([undefined]);
  });

  it('is not that of the code that set its timer', async () => {
    const app = await boot([]);
    const locks = app.get(LockService);
    const seen: unknown[] = [];
    const onTick = app.get(CronRuns).guard('dynamic', { everyMs: 50 }, async () => {
      const lock = await locks.tryAcquire('tenant', { reentrant: true });
      seen.push(lock, caller.getStore());
    });
    await caller.run('caller', () =>
      locks.withLock('tenant', () => until(async () => onTick().then(() => seen.length > 0))),
    );
    expect(seen.slice(0, 2)).toEqual([null, undefined]);
  });
});

describe('super.job(run) with the received run', () => {
  it.each([false, true])('is part of the run, of a job that is disabled here: %s', async (isDisabled) => {
    class Base {
      done = 0;
      @SingletonCron({ key: 'base' })
      @Interval(60_000)
      async job(_run: CronRun): Promise<void> {
        this.done += 1;
      }
    }
    @Injectable()
    class Shop extends Base {
      @SingletonCron({ key: 'shop' })
      @Interval(60_000)
      override async job(run: CronRun): Promise<void> {
        await super.job(run);
      }
    }
    const app = await boot([Shop], memoryBackend(), { shop: { disabled: isDisabled } });
    expect(await app.get(CronRuns).runNow('shop')).toMatchObject({ outcome: 'completed' });
    expect(app.get(Shop).done).toBe(1);
  });

  it.each<['pool' | 'late']>([['pool'], ['late']])(
    'is part of the run without its asynchronous context, and after it was given up (%s)',
    async (when) => {
      const outside = new AsyncResource('pool');
      const gate = new Gate();
      class Base {
        readonly runs: CronRun[] = [];
        @SingletonCron('0 0 1 1 *', { key: 'base' })
        async job(run: CronRun): Promise<void> {
          this.runs.push(run);
        }
      }
      @Injectable()
      class Shop extends Base {
        @SingletonCron('0 0 1 1 *', { key: 'shop', maxRunMs: when === 'late' ? 50 : 60_000, leaseMs: 1_000 })
        override async job(run: CronRun): Promise<void> {
          if (when === 'late') await gate.passed;
          await outside.runInAsyncScope(() => super.job(run));
        }
      }
      const app = await boot([Shop]);
      const { outcome, tick } = await app.get(CronRuns).runNow('shop');
      expect(outcome).toBe(when === 'late' ? 'timed-out' : 'completed');
      gate.open();
      const { runs } = app.get(Shop);
      await until(() => runs.length > 0);
      expect(runs.map((run) => run.tick)).toEqual([tick]);
    },
  );
});
