import { afterEach, describe, expect, it, vi } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { DistributedLockModule, Locked, SingletonCron } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';

const NEVER = '0 0 29 2 *';
const LONG_MS = 1_000_000;
const ignore = () => undefined;

let testing: TestingModule | undefined;
afterEach(async () => {
  vi.unstubAllEnvs();
  await testing?.close();
});

const production = () => [
  ScheduleModule.forRoot(),
  DistributedLockModule.forRoot({ backend: memoryBackend() }),
  DistributedLockModule.forRoot({ name: 'other', namespace: 'other', backend: memoryBackend() }),
];

/** The warnings of a boot with these providers. */
async function bootWarnings(providers: Type[], imports: object[] = production()): Promise<string[]> {
  const warned: string[] = [];
  testing = await Test.createTestingModule({ imports: imports as Type[], providers })
    .setLogger({ log: ignore, error: ignore, warn: (text: string) => void warned.push(text) })
    .compile();
  await testing.init();
  return warned;
}

describe('a scheduled method with @Locked and without @SingletonCron', () => {
  @Injectable()
  class Jobs {
    @Locked('above')
    @Cron(NEVER)
    async above(): Promise<void> {}

    @Cron(NEVER)
    @Locked(() => 'below')
    async below(): Promise<void> {}

    @Interval(LONG_MS)
    @Locked('interval', { service: 'other', onContention: 'skip' })
    async interval(): Promise<undefined> {}

    @Timeout(LONG_MS)
    @Locked('timeout')
    async timeout(): Promise<void> {}
  }

  @Injectable()
  class Inherited extends Jobs {}

  it('is warned of at boot, once for each method', async () => {
    const warned = await bootWarnings([Jobs, Inherited]);
    const warning = (method: string, decorator: string) =>
      expect.stringMatching(
        `@Locked on Jobs\\.${method} does not make this job run once.*write @SingletonCron\\(${decorator}\\) in place of @Locked`,
      ) as string;
    expect(warned.sort()).toEqual([
      warning('above', ''),
      warning('below', ''),
      warning('interval', ''),
      warning('timeout', '{ deployKey: … }'),
    ]);
  });

  it('is not warned of without a scheduler, which fires nothing', async () => {
    const [, ...withoutScheduler] = production();
    expect(await bootWarnings([Jobs], withoutScheduler)).toEqual([]);
  });

  it('is not warned of in a test, where there are no replicas', async () => {
    expect(
      await bootWarnings(
        [Jobs],
        [ScheduleModule.forRoot(), LockTestingModule.forRoot(), LockTestingModule.forRoot({ name: 'other' })],
      ),
    ).toEqual([]);
  });
});

it('a method that is scheduled and guarded, or locked and called by the application, is not warned of', async () => {
  @Injectable()
  class Base {
    @Locked('report')
    @Cron(NEVER)
    async report(): Promise<void> {}
  }

  @Injectable()
  class Jobs extends Base {
    @Locked('guarded')
    @SingletonCron(NEVER)
    async guarded(): Promise<void> {}

    @SingletonCron({ service: 'other' })
    @Cron(NEVER)
    @Locked('guarded elsewhere')
    async guardedElsewhere(): Promise<void> {}

    @Locked('called')
    async called(): Promise<void> {}

    @SingletonCron(NEVER)
    override async report(): Promise<void> {}
  }

  expect(await bootWarnings([Jobs])).toEqual([]);
});

describe('a job at a date', () => {
  const dateWithMs = new Date(Date.now() + LONG_MS);
  dateWithMs.setMilliseconds(5);

  @Injectable()
  class Soon {
    @SingletonCron()
    @Cron(dateWithMs)
    async soon(): Promise<void> {}
  }

  @Injectable()
  class Agreed {
    @SingletonCron()
    @Cron(new Date(Date.UTC(2100, 0, 1)))
    async agreed(): Promise<void> {}
  }

  it('is warned of at boot if each replica has computed its own', async () => {
    expect(await bootWarnings([Soon, Agreed])).toEqual([
      expect.stringMatching(/@SingletonCron on Soon\.soon .*each replica has probably computed.*deployKey/),
    ]);
  });

  it('is not warned of in a test, where there are no replicas', async () => {
    expect(await bootWarnings([Soon], [ScheduleModule.forRoot(), LockTestingModule.forRoot()])).toEqual([]);
  });
});

it('locks in memory are warned of at boot if NODE_ENV is production', async () => {
  vi.stubEnv('NODE_ENV', 'production');
  const memory = [DistributedLockModule.forRoot({ backend: memoryBackend() })];
  expect(await bootWarnings([], memory)).toEqual([
    expect.stringMatching(/memoryBackend\(\).*in this process only.*jobs run in every replica/),
  ]);
});
