import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { postgresStore, redisStore } from '../support/stores.js';
import { until } from '../support/until.js';
import { CronReplicas, checkRuns, countOverlaps } from '../faults/scenarios/cron-replicas.js';
import { endAllWorkers } from './start-worker.js';

afterAll(endAllWorkers);

const stores = [
  ['redis', redisStore],
  ['postgres', postgresStore],
] as const;

const planOn = (store: ReturnType<typeof redisStore>) => ({
  ...{ store, namespace: randomUUID(), replicas: 3, mostPeriodsOff: 2 },
  ...{ periodMs: 500, workMs: 400 },
});

it.concurrent.each(stores)(
  'a tick whose replica is killed in the middle is completed by another one, on %s',
  async (_, storeOf) => {
    const options = { onDeadRun: 'retry', leaseMs: 600, maxAttempts: 10 } as const;
    const replicas = new CronReplicas({ ...planOn(storeOf()), options });
    await replicas.start();
    for (let kill = 0; kill < 3; kill += 1) {
      const tickMs = await replicas.killBusy();
      await until(() =>
        replicas.runs.some((run) => run.tickMs === tickMs && run.attempt > 1 && run.isComplete),
      );
    }
    // A run that loses its lock while the replicas close has none to repeat it.
    const lastTickMs = Math.max(...replicas.runs.map(({ tickMs }) => tickMs));
    const begun = () => replicas.runs.filter(({ tickMs }) => tickMs <= lastTickMs);
    await until(() => checkRuns(begun(), options.maxAttempts).lost === 0);
    await replicas.close();
    expect(checkRuns(begun(), options.maxAttempts).lost).toBe(0);
    expect(checkRuns(replicas.runs, options.maxAttempts)).toMatchObject({ doubled: 0, misnumbered: 0 });
    expect(countOverlaps(replicas.runs)).toBe(0);
  },
  120_000,
);

it.concurrent.each(stores)(
  'a tick whose replica is killed in the middle is not run again without retry, on %s',
  async (_, storeOf) => {
    const replicas = new CronReplicas({ ...planOn(storeOf()), options: { leaseMs: 600 } });
    await replicas.start();
    const killed = await replicas.killBusy();
    await until(
      () => replicas.runs.filter(({ tickMs, isComplete }) => tickMs > killed && isComplete).length >= 3,
    );
    await replicas.close();
    expect(replicas.runs.filter(({ tickMs }) => tickMs === killed)).toHaveLength(1);
    expect(checkRuns(replicas.runs, 1)).toMatchObject({ doubled: 0, misnumbered: 0 });
  },
  120_000,
);

it.concurrent.each(stores)(
  'a replica that survives a killed one names the dead run once, and when the job is free, on %s',
  async (_, storeOf) => {
    const options = { leaseMs: 10_000 };
    const replicas = new CronReplicas({ ...planOn(storeOf()), mostPeriodsOff: 0, options });
    await replicas.start();
    const killed = await replicas.killBusy();
    await until(() => replicas.runs.some(({ tickMs, isComplete }) => tickMs > killed && isComplete));
    const perReplica = replicas.warnings;
    await replicas.close();
    const warnings = perReplica.flat();
    expect(warnings.length).toBeGreaterThan(0);
    expect(perReplica.filter(({ length }) => length > 1)).toEqual([]);
    for (const warning of warnings) {
      expect(warning).toMatch(
        /^Ticks of the job "job" are skipped: \d+, which has run it since \S+Z, .* The job becomes free in \d+ ms\.$/,
      );
    }
  },
  120_000,
);

it.concurrent.each(stores)(
  "a dead run of a job with overlap: 'allow' is named, though it keeps no tick from running, on %s",
  async (_, storeOf) => {
    const options = { leaseMs: 10_000, overlap: 'allow' } as const;
    const replicas = new CronReplicas({ ...planOn(storeOf()), mostPeriodsOff: 0, options });
    await replicas.start();
    await killOneOfWhichOthersKnow(replicas);
    await until(() => replicas.warnings.flat().length > 0);
    const warnings = replicas.warnings.flat();
    await replicas.close();
    for (const warning of warnings) {
      expect(warning).toMatch(
        /^A run of the job "job" has probably died: \d+, which began it at \S+Z, .* Its lease ends in \d+ ms\.$/,
      );
    }
  },
  120_000,
);

/** A replica looks at a run with a lock of its own only if it was refused that tick. One that is kept busy may miss a tick. */
async function killOneOfWhichOthersKnow(replicas: CronReplicas): Promise<void> {
  for (;;) {
    const killed = await replicas.killBusy();
    await until(() => replicas.runs.some(({ tickMs }) => tickMs > killed));
    if (replicas.skips.some(({ tickMs }) => tickMs === killed)) return;
  }
}
