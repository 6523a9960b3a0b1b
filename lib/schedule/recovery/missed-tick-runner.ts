import type { AcquireResult } from '../../core/backend.js';
import { Lease } from '../../core/leases/lease.js';
import { sleep } from '../../core/sleep.js';
import { type Job, runsMissedTicks, retriesDeadRuns } from '../job.js';
import type { Plan } from '../plan/plan.js';
import type { DeadRunWatcher, RecoveryParts } from './dead-run-watcher.js';
import { createTick } from '../plan/tick-calculator.js';
import { buildRecoveryProbe, buildOverlapChangeProbe, listStoredTicks } from '../tick-claim.js';

interface MissedTickRunnerParts extends RecoveryParts {
  readonly deadRunWatcher: DeadRunWatcher;
}

type PlannedJob = Job & { readonly plan: Plan };

/** Between two looks at a store that does not answer. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;

/**
 * Looks, when a process begins to fire a job and when the store answers again, for what nobody could fire: a run that died while no
 * other replica watched it, and a tick over which all replicas were down.
 */
export class MissedTickRunner {
  readonly #parts: MissedTickRunnerParts;
  readonly #recovering = new Set<Job>();

  constructor(parts: MissedTickRunnerParts) {
    this.#parts = parts;
  }

  /** Nobody waits for that, and it never rejects. */
  recover(job: Job): void {
    if (!(runsMissedTicks(job) || retriesDeadRuns(job)) || this.#recovering.has(job)) return;
    this.#recovering.add(job);
    void this.#parts.context
      .runInAsyncScope(() => this.#recover(job))
      .catch((error: unknown) => job.onError(error))
      .finally(() => this.#recovering.delete(job));
  }

  async #recover(job: Job): Promise<void> {
    if (!isPlanned(job)) return;
    const { clock, stopping } = this.#parts.locks;
    let pauseMs = FIRST_PAUSE_MS;
    // This looks again when the process comes to lead, or to fire the job.
    while (!stopping.aborted && job.isFiring() && (await this.#parts.mayRun(job))) {
      if (await this.#tryToRecover(job)) return;
      await sleep(clock, pauseMs * (0.5 + Math.random() / 2), stopping);
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  /** Does what there is to do; `false` if the store did not answer or more may have to be done. */
  async #tryToRecover(job: PlannedJob): Promise<boolean> {
    const { locks, deadRunWatcher } = this.#parts;
    const params = buildRecoveryProbe(job, locks);
    const { tick } = params;
    const result = await locks.claimTick(job.key, params);
    if (result instanceof Lease || result.kind !== 'refused') return false;
    const nowMs = tick.tickMs - result.aheadMs;
    if (retriesDeadRuns(job)) {
      // Each has a key of its own, so one answer does not tell of all.
      for (const each of listStoredTicks(job, nowMs, locks) ?? []) void deadRunWatcher.watch(job, each, 0);
    }
    if (result.unfinishedMs !== undefined) {
      await deadRunWatcher.watch(job, createTick(job.plan, result.unfinishedMs), 0);
      return false;
    }
    if (result.reason === 'registered') return true;
    return runsMissedTicks(job)
      ? this.#runMissedTick(job, nowMs)
      : this.#watchCurrentRun(job, params.storeKey);
  }

  /** Claims the newest tick that is past by the store's clock: if it was run, or somebody else is quicker, all is well. */
  async #runMissedTick(job: PlannedJob, nowMs: number): Promise<boolean> {
    const tickMs = job.plan.latest(nowMs);
    if (tickMs === undefined) return true;
    const tick = createTick(job.plan, tickMs);
    const { locks, invoke } = this.#parts;
    const probeResult = await locks.claimTick(job.key, buildOverlapChangeProbe(job, tick, locks));
    if (probeResult instanceof Lease || probeResult.kind !== 'refused') return false;
    if (probeResult.reason === 'claimed') return true;
    const result = await invoke(job, tick, { isMissed: true });
    return result === undefined || result instanceof Lease || isKnown(result);
  }

  /** A run that is on now may have begun before this process did, so that no timer here knows of it. */
  async #watchCurrentRun(job: PlannedJob, storeKey: string | undefined): Promise<boolean> {
    const { locks } = this.#parts;
    try {
      for (let firstToken: bigint | undefined; !locks.stopping.aborted;) {
        const currentRun = await locks.inspectRun(job.key, storeKey);
        firstToken ??= currentRun?.fencingToken;
        if (!currentRun) return firstToken === undefined;
        if (currentRun.fencingToken !== firstToken) return true;
        await sleep(locks.clock, currentRun.remainingMs, locks.stopping);
      }
      return true;
    } catch {
      return false; // The store did not answer, of which others tell.
    }
  }
}

const isPlanned = (job: Job): job is PlannedJob => job.plan !== undefined;

const isKnown = ({ kind }: AcquireResult) => kind !== 'unknown';
