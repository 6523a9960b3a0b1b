import { afterEach, describe, expect, it } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { Cron, ScheduleModule, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import { CronRuns, DistributedLockModule, LockConfigError, SingletonCron } from '../../lib/index.js';

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(...providers: Type[]) {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: new MemoryBackend() }), ScheduleModule.forRoot()],
    providers,
  }).compile();
  closing.push(app);
  return app.init();
}

const UNSET = undefined as unknown as string;

describe('an expression from a variable that is not set', () => {
  it.each([
    ['alone', [UNSET]],
    ['beside options', [UNSET, { key: 'report' }]],
  ])('does not boot, %s, and the error names undefined and the environment variable', async (_, given) => {
    @Injectable()
    class Report {
      @SingletonCron(...(given as [string]))
      async run(): Promise<void> {}
    }
    const booting = boot(Report);
    await expect(booting).rejects.toThrow(LockConfigError);
    await expect(booting).rejects.toThrow(
      /@SingletonCron on Report\.run: .*got undefined.*environment variable/,
    );
  });

  it('does not boot with @Timeout and a deployKey from such a variable', async () => {
    @Injectable()
    class Warmup {
      @SingletonCron({ deployKey: UNSET })
      @Timeout(1)
      async run(): Promise<void> {}
    }
    await expect(boot(Warmup)).rejects.toThrow(/deployKey.*got undefined.*environment variable/);
  });

  it.each([{ cronTime: UNSET }, { everyMs: undefined as unknown as number }])(
    'is no guard, and the error names it: %j',
    async (options) => {
      const runs = (await boot()).get(CronRuns);
      const guard = () => runs.guard('import', options, () => undefined);
      expect(guard).toThrow(LockConfigError);
      expect(guard).toThrow(
        new RegExp(`'import'.*got undefined for ${Object.keys(options)[0]};.*environment variable`),
      );
    },
  );
});

describe('helpers that pass on their arguments', () => {
  it.each([
    ['no options', [undefined], 'Report.run'],
    ['options beside no expression', [UNSET, { key: 'report' }], 'report'],
  ])('guard a @Cron with %s', async (_, given, key) => {
    @Injectable()
    class Report {
      @SingletonCron(...(given as []))
      @Cron('0 3 * * *')
      async run(): Promise<void> {}
    }
    const app = await boot(Report);
    expect((await app.get(CronRuns).history(key)).nextTick).toBeInstanceOf(Date);
  });
});
