import { expect, it, jest } from '@jest/globals';
import type { LoggerService } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { jobStoreKey } from '../../lib/core/key.js';
import { CronRuns, DistributedLockModule } from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/index.js';

const LEASE_MS = 30_000;

/** A replica that skips a job of every second, which another replica runs. */
async function boot(otherLeaseMs = LEASE_MS) {
  const clock = new SettableClock(Date.UTC(2026, 0, 1));
  const backend = memoryBackend({ clock });
  const [warn, debug] = [jest.fn<LoggerService['warn']>(), jest.fn<LoggerService['warn']>()];
  const logger = { log: () => undefined, error: () => undefined, warn, debug };
  const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend })] })
    .setLogger(logger)
    .compile();
  await app.init();
  const onTick = app.get(CronRuns).guard('report', { everyMs: 1_000, leaseMs: LEASE_MS }, () => undefined);
  const other = { key: jobStoreKey('lock', 'report'), holder: 'other' };
  await backend.exchange({ acquire: [{ ...other, instance: 'pod-2:17', leaseMs: otherLeaseMs }] });
  const pass = async (seconds: number, renewEach = Infinity) => {
    for (let second = 1; second <= seconds; second += 1) {
      await clock.advance(1_000);
      if (second % renewEach === 0) await backend.exchange({ renew: [{ ...other, leaseMs: otherLeaseMs }] });
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

it('a run that died is named once, with when it frees the job, and each skip is logged at debug level', async () => {
  const { app, pass, warned, skipped } = await boot();
  await pass(29);
  expect(warned()).toEqual([
    'Ticks of the job "report" are skipped: pod-2:17, which has run it since 2026-01-01T00:00:00.000Z, no longer renews its ' +
      'lease and has probably died. The job is free in 15000 ms.',
  ]);
  expect(skipped()).toHaveLength(29);
  expect(skipped()[0]).toBe('Skipped the tick 2026-01-01T00:00:01.000Z of the job "report": overlap.');
  await app.close();
});

it('a long run that is on is not taken for dead', async () => {
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
