import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { Test } from '@nestjs/testing';
import { jobStoreKey } from '../../lib/core/store-key.js';
import { CronRuns, DistributedLockModule } from '../../lib/index.js';
import { backendOn, postgresStore, redisStore } from '../support/stores.js';
import { until } from '../support/until.js';

const LEASE_MS = 60_000;

const stores = [
  ['redis', redisStore],
  ['postgres', postgresStore],
] as const;

it.each(stores)(
  'a retried job that awaits app.close() has ended when it returns, on %s',
  async (_, storeOf) => {
    const namespace = randomUUID();
    const app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend: backendOn(storeOf()), namespace })],
    }).compile();
    app.useLogger(false);
    await app.init();
    const options = { everyMs: 1_000, leaseMs: LEASE_MS, onDeadRun: 'retry', maxAttempts: 2 } as const;
    const runs: { readonly tickMs: number; readonly attempt: number }[] = [];
    const onTick = app.get(CronRuns).guard('restart', options, async ({ tick, attempt }) => {
      runs.push({ tickMs: tick.getTime(), attempt });
      await app.close();
    });
    await until(async () => {
      await onTick();
      return runs.length > 0;
    });
    const [run] = runs;
    const other = backendOn(storeOf());
    const key = jobStoreKey(namespace, 'restart');
    await until(async () => (await other.inspect(key, 5_000)) === null);
    // What a replica asks that watches the run.
    const tick = { tickMs: run!.tickMs, maxEarlyMs: 0, staleAfterMs: 3_600_000, maxAttempts: 2 };
    const acquire = [{ key, holder: 'other', instance: 'other', leaseMs: LEASE_MS, tick }];
    expect((await other.execute({ acquire }, 5_000)).acquire).toMatchObject([
      { kind: 'refused', reason: 'claimed' },
    ]);
    await other.close();
  },
);
