import { expect, it } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import {
  CronRuns,
  DistributedLockModule,
  LeaderElection,
  LockConfigError,
  LockService,
  Locked,
  OnElected,
  SingletonCron,
} from '../../lib/index.js';

class ShortLeases extends MemoryBackend {
  readonly maxLeaseMs = 10_000;
}

const appWith = async (...providers: Type[]) => {
  const options = { backend: new ShortLeases(), defaults: { leaseMs: 10_000 } };
  const imports = [ScheduleModule.forRoot(), DistributedLockModule.forRoot(options)];
  return Test.createTestingModule({ imports, providers }).compile();
};

@Injectable()
class Orders {
  @Locked('order', { leaseMs: 10_001 })
  async ship(): Promise<void> {}
}

@Injectable()
class Slow {
  @Interval(60_000)
  @SingletonCron({ key: 'slow', leaseMs: 10_001 })
  async run(): Promise<void> {}
}

@Injectable()
class Leader {
  @OnElected('leader', { leaseMs: 10_001 })
  async lead(): Promise<void> {}
}

it('a longer default lease than the backend can keep does not boot', async () => {
  const clients = [1, 2, 3].map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const boot = (defaults: { leaseMs?: number }) => {
    const backend = redlockBackend({ clients, maxLeaseMs: 20_000 });
    return Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend, defaults })],
    }).compile();
  };
  await expect(boot({ leaseMs: 20_001 })).rejects.toThrow(LockConfigError);
  await expect(boot({ leaseMs: 20_001 })).rejects.toThrow(/defaults.leaseMs to be at most 20000, which is/);
  await expect(boot({})).rejects.toThrow(/got 30000; ask for less, or raise maxLeaseMs/);
});

it('a call with a longer lease throws, and the store is not asked', async () => {
  const app = await appWith(Orders);
  await app.init();
  const locks = app.get(LockService);
  await using lock = await locks.acquire('key');
  const questions = [
    () => locks.acquire('other', { leaseMs: 10_001 }),
    () => locks.tryAcquire('other', { leaseMs: 10_001 }),
    () => locks.withLock('other', { leaseMs: 10_001 }, () => undefined),
    () => lock.extend(10_001),
    () => app.get(Orders).ship(),
    async () => app.get(CronRuns).guard('job', { everyMs: 1_000, leaseMs: 10_001 }, () => undefined),
    async () => app.get(LeaderElection).join('election', { leaseMs: 10_001 }),
  ];
  for (const question of questions) {
    await expect(question()).rejects.toThrow(LockConfigError);
    await expect(question()).rejects.toThrow(/to be at most 10000, which is maxLeaseMs of this backend/);
  }
  expect(await locks.inspect('other')).toBeNull();
  await lock.extend(10_000);
  await lock.release();
  await app.close();
});

it.each([
  [Slow, "Wrong options of the job 'slow': expected leaseMs to be at most 10000"],
  [Leader, "expected leaseMs of election 'leader' to be at most 10000"],
])('%j with a longer lease than the backend can keep does not boot', async (provider, reason) => {
  const app = await appWith(provider);
  await expect(app.init()).rejects.toThrow(reason);
  await app.close();
});
