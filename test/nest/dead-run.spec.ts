import { describe, expect, it, vi } from 'vitest';
import type { LoggerService } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { jobStoreKey, tickStoreKey } from '../../lib/core/store-key.js';
import { CronRuns, DistributedLockModule } from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/index.js';

const LEASE_MS = 30_000;

/** A replica that skips a job that fires each second, because another replica runs it. */
async function boot(otherLeaseMs = LEASE_MS) {
  const clock = new SettableClock(Date.UTC(2026, 0, 1));
  const backend = memoryBackend({ clock });
  const [warn, debug] = [vi.fn<LoggerService['warn']>(), vi.fn<LoggerService['warn']>()];
  const logger = { log: () => undefined, error: () => undefined, warn, debug };
  const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend })] })
    .setLogger(logger)
    .compile();
  await app.init();
  const onTick = app.get(CronRuns).guard('report', { everyMs: 1_000, leaseMs: LEASE_MS }, () => undefined);
  const other = { key: jobStoreKey('lock', 'report'), holder: 'other' };
  await backend.execute({ acquire: [{ ...other, instance: 'pod-2:17', leaseMs: otherLeaseMs }] });
  const pass = async (seconds: number, renewEach = Infinity) => {
    for (let second = 1; second <= seconds; second += 1) {
      await clock.advance(1_000);
      if (second % renewEach === 0) await backend.execute({ renew: [{ ...other, leaseMs: otherLeaseMs }] });
      await onTick();
    }
  };
  const texts = (spy: typeof warn) => spy.mock.calls.map(([text]) => String(text));
  return {
    app,
    pass,
    warned: () => texts(warn),
    skipped: () => texts(debug).filter((text) => /^Skipped/.test(text)),
  };
}

it('a dead run is logged once, with the time until the job is free, and each skip is logged at debug level', async () => {
  const { app, pass, warned, skipped } = await boot();
  await pass(29);
  expect(warned()).toEqual([
    'Ticks of the job "report" are skipped: pod-2:17, which has run it since 2026-01-01T00:00:00.000Z, no longer renews its ' +
      'lease and has probably died. The job becomes free in 15000 ms.',
  ]);
  expect(skipped()).toHaveLength(29);
  expect(skipped()[0]).toBe('Skipped the tick 2026-01-01T00:00:01.000Z of the job "report": overlap.');
  await app.close();
});

it('a long run in progress is not reported as dead', async () => {
  const { app, pass, warned, skipped } = await boot();
  await pass(90, 10);
  expect(warned()).toEqual([]);
  expect(skipped()).toHaveLength(90);
  await app.close();
});

it.each([10_000, 90_000])(
  'a run with another lease, as in a rolling deploy, is judged by that one: %i ms',
  async (otherLeaseMs) => {
    const { app, pass, warned } = await boot(otherLeaseMs);
    await pass((2 * otherLeaseMs) / 1_000, Math.floor(otherLeaseMs / 3_000));
    expect(warned()).toEqual([]);
    await pass(otherLeaseMs / 1_000 - 1);
    expect(warned()).toHaveLength(1);
    await app.close();
  },
);

/** Two replicas of a job whose ticks may overlap, each with its own application on one store. */
async function bootOverlapping(onDeadRun: 'skip' | 'retry') {
  const clock = new SettableClock(Date.UTC(2026, 0, 1));
  const store = memoryBackend({ clock });
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: store, instance: 'pod-1' })],
  })
    .setLogger({
      log: () => undefined,
      error: () => undefined,
      warn: (text: string) => void warned.push(text),
    })
    .compile();
  const warned: string[] = [];
  await app.init();
  const options = { everyMs: 60_000, leaseMs: LEASE_MS, overlap: 'allow', onDeadRun } as const;
  const onTick = app.get(CronRuns).guard('report', options, () => undefined);
  const tickMs = clock.wallMs() + 60_000;
  const other = { key: tickStoreKey('lock', 'report', tickMs), holder: 'other' };
  await clock.advance(60_000);
  const tick = { tickMs, maxEarlyMs: 0, staleAfterMs: 600_000, maxAttempts: onDeadRun === 'retry' ? 3 : 1 };
  await store.execute({ acquire: [{ ...other, instance: 'pod-2:17', leaseMs: LEASE_MS, tick }] });
  await onTick();
  const pass = async (seconds: number, isRenewed = false) => {
    for (let second = 1; second <= seconds; second += 1) {
      await clock.advance(1_000);
      if (isRenewed) await store.execute({ renew: [{ ...other, leaseMs: LEASE_MS }] });
    }
  };
  return { app, store, other, warned, pass };
}

describe.each(['skip', 'retry'] as const)("with overlap: 'allow' and onDeadRun: '%s'", (onDeadRun) => {
  it('a dead run is logged once, although no tick is skipped because of it', async () => {
    const { app, warned, pass } = await bootOverlapping(onDeadRun);
    await pass(29);
    expect(warned).toEqual([
      expect.stringMatching(
        /^A run of the job "report" has probably died: pod-2:17, which began it at 2026-01-01T00:01:00\.000Z, .* ends in \d+ ms\.$/,
      ),
    ]);
    await app.close();
  });

  it('a run that dies late is logged too', async () => {
    const { app, warned, pass } = await bootOverlapping(onDeadRun);
    await pass(90, true);
    expect(warned).toEqual([]);
    await pass(29);
    expect(warned).toHaveLength(1);
    await app.close();
  });

  it('a run that ends is not logged', async () => {
    const { app, store, other, warned, pass } = await bootOverlapping(onDeadRun);
    await pass(20, true);
    await store.execute({ release: [{ ...other, hasEnded: true }] });
    await pass(60);
    expect(warned).toEqual([]);
    await app.close();
  });
});
