import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { machineMs } from '../../support/machine-clock.js';
import { until } from '../../support/until.js';
import { type StoredEntry, findOrphans } from './checkers/orphans.js';
import { WorkerPool } from './workers/worker-pool.js';
import { type Acquisition, acquisitionsOf } from './workers/history.js';
import type { NemesisContext } from './nemesis/nemesis.js';
import type { Round } from './plan.js';
import { Random } from '../../support/random.js';
import { Resource } from './workers/resource.js';
import type { InjectedFault } from './injected-fault.js';
import { type Findings, checkEvidence } from './findings.js';
import type { StoreUnderTest } from './stores/store-under-test.js';

export interface Episode {
  readonly store: StoreUnderTest;
  readonly seed: number;
  readonly plan: readonly Round[];
  /** Where the compiled code of the workers is. */
  readonly code: string;
  /**
   * How many processes work at the same time.
   *
   * @default 4
   */
  readonly size?: number;
  /** Ends it after the round that is under way. */
  readonly interrupted?: AbortSignal;
}

/** Once a round is over and all have started, each process must be granted something within this time. */
const RECOVERY_MS = 20_000;
const POLL_MS = 20;
const STANDSTILL = 'the store itself stood still';
const LOAD = { callers: 4, keys: 5 } as const;

/** Lets processes work while things go wrong, round after round, and tells what the checkers say of what they wrote. */
export async function runEpisode(episode: Episode): Promise<Findings> {
  const { store, seed, plan, code, size = 4, interrupted } = episode;
  const folder = mkdtempSync(join(tmpdir(), `lock-chaos-${store.name}-${seed}-`));
  const namespace = randomUUID();
  const resource = await Resource.open();
  const random = new Random(seed);
  const workers = await WorkerPool.start({
    store,
    random,
    code,
    folder,
    namespace,
    resourcePort: resource.port,
    size,
    ...LOAD,
  });
  const faults: InjectedFault[] = [];
  const stuck: string[] = [];
  let isClean = false;
  try {
    const waitUntilRecovered = async (after: string) => {
      const startedAtMs = machineMs();
      await until(() => workers.isReady);
      const sinceMs = machineMs();
      let late = await waitForRecovery(workers, resource, sinceMs);
      if (late.length > 0 && (await store.endStandstill?.())) {
        const healedAtMs = machineMs();
        late = await waitForRecovery(workers, resource, healedAtMs);
        const recoveryMs = machineMs() - healedAtMs;
        faults.push({ nemesis: STANDSTILL, isInsideGuarantee: true, startedAtMs, healedAtMs, recoveryMs });
      }
      stuck.push(
        ...late.map((name) => `${name} was granted nothing within ${RECOVERY_MS} ms after ${after}`),
      );
      return machineMs() - sinceMs;
    };
    await waitUntilRecovered('the start');
    for (const round of plan) {
      if (interrupted?.aborted) break;
      const done = await settleAll(round.map((one) => injectFault({ store, workers }, one)));
      const recoveryMs = await waitUntilRecovered(round.map(({ nemesis }) => nemesis.name).join(' + '));
      faults.push(...done.map((one) => ({ ...one, recoveryMs })));
    }
    await workers.end();
    const acquisitions = acquisitionsOf(workers.histories);
    const findings = checkEvidence({
      ...{
        acquisitions,
        faults,
        stuck,
        sessionMs: store.sessionMs,
        stops: workers.stops,
        crashes: workers.crashes,
        left: workers.leftovers,
      },
      attempts: resource.attempts,
      lists: { fenced: [...resource.fenced.values()], unfenced: [...resource.unfenced.values()] },
      orphans: await findRemainingOrphans(store, namespace, acquisitions),
    });
    isClean = findings.violations.length === 0;
    if (isClean) return findings;
    writeFileSync(join(folder, 'findings.json'), JSON.stringify(findings, null, 2));
    return { ...findings, folder };
  } finally {
    await workers.clear();
    await resource.close();
    if (isClean) rmSync(folder, { recursive: true, force: true });
  }
}

async function injectFault(
  context: NemesisContext,
  { nemesis, seed }: Round[number],
): Promise<InjectedFault> {
  const startedAtMs = machineMs();
  await nemesis.inject(context, new Random(seed));
  const { name, isInsideGuarantee } = nemesis;
  return { nemesis: name, isInsideGuarantee, startedAtMs, healedAtMs: machineMs() };
}

/** Like `Promise.all`, but none is still at work when another has failed. */
async function settleAll<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(promises);
  return Promise.all(promises);
}

/** Waits until each process has come with a lock; tells who did not in time. */
async function waitForRecovery(workers: WorkerPool, resource: Resource, sinceMs: number): Promise<string[]> {
  const missing = () =>
    workers.slots
      .filter(({ worker }) => resource.lastWriteAtMs(worker.name) < sinceMs)
      .map(({ worker }) => worker.name);
  while (missing().length > 0 && machineMs() - sinceMs < RECOVERY_MS) await sleep(POLL_MS);
  return missing();
}

/** What was on its way when the last application closed may take a moment. */
const ORPHAN_GRACE_MS = 2_000;

async function findRemainingOrphans(
  store: StoreUnderTest,
  namespace: string,
  acquisitions: readonly Acquisition[],
): Promise<StoredEntry[]> {
  const giveUpAtMs = machineMs() + ORPHAN_GRACE_MS + (store.sessionMs ?? 0);
  for (;;) {
    const left = findOrphans(await store.storedEntries(namespace), acquisitions, machineMs(), store.keptMs);
    if (left.length === 0 || machineMs() > giveUpAtMs) return left;
    await sleep(100);
  }
}
