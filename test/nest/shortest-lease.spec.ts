import { expect, it } from 'vitest';
import { Test } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  CronRuns,
  DistributedLockModule,
  LeaderElection,
  LockConfigError,
  LockService,
} from '../../lib/index.js';
import { bareLocks } from '../support/bare-locks.js';

class LongLeases extends MemoryBackend {
  readonly minLeaseMs = 2_000;
}

const moduleWith = (leaseMs: number) =>
  Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: new LongLeases(), defaults: { leaseMs } })],
  }).compile();

it('a shorter default lease than the store can end in time does not boot', async () => {
  await expect(moduleWith(1_999)).rejects.toThrow(LockConfigError);
  await expect(moduleWith(1_999)).rejects.toThrow(
    /defaults.leaseMs to be at least 2000, which is minLeaseMs of this backend/,
  );
});

it('a call with a shorter lease throws, and the store is not asked', async () => {
  const app = await moduleWith(2_000);
  await app.init();
  const locks = app.get(LockService);
  await using lock = await locks.acquire('key');
  const questions = [
    () => locks.acquire('other', { leaseMs: 1_999 }),
    () => locks.tryAcquire('other', { leaseMs: 1_999 }),
    () => lock.extend(1_999),
    async () => app.get(CronRuns).guard('job', { everyMs: 1_000, leaseMs: 1_999 }, () => undefined),
    async () => app.get(LeaderElection).join('election', { leaseMs: 1_999 }),
  ];
  for (const question of questions) await expect(question()).rejects.toThrow(/to be at least 2000/);
  expect(await locks.inspect('other')).toBeNull();
  await lock.release();
  await app.close();
});

it('a held lock is confirmed by a renewal of a shorter lease, which the store accepts', async () => {
  const locks = bareLocks({ backend: new LongLeases(), namespace: 'short' });
  await using lock = await locks.acquire('key', { leaseMs: 2_000 });
  const waiting = locks.acquire('key', { leaseMs: 2_000 });
  await lock.release();
  await using next = await waiting;
  expect(next.isValid()).toBe(true);
});
