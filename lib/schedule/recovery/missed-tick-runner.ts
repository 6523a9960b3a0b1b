import type { AcquireResult } from '../../core/backend.js';
import { Lease } from '../../core/leases/lease.js';
import { sleep } from '../../core/sleep.js';
import { type Job, retriesDeadRuns, runsMissedTicks } from '../job.js';
import type { Plan } from '../plan/plan.js';
import { createTick } from '../plan/tick-calculator.js';
import { buildOverlapChangeProbe, buildRecoveryProbe, listStoredTicks } from '../tick-claim.js';
import type { DeadRunWatcher, RecoveryParts } from './dead-run-watcher.js';

interface MissedTickRunnerParts extends RecoveryParts {
  readonly deadRunWatcher: DeadRunWatcher;
}

type PlannedJob = Job & { readonly plan: Plan };

/** Pauses between two attempts while the store does not answer: they double from the first to the maximum. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;

/**
 * Finds what no timer could fire: a run that died while no other replica watched it, and a tick at which all replicas were
 * down. It looks when this process begins to fire a job, and when the store answers again.
 */
export class MissedTickRunner {
  readonly #parts: MissedTickRunnerParts;
  readonly #recovering = new Set<Job>();

  constructor(parts: MissedTickRunnerParts) {
    this.#parts = parts;
  }

  /** Starts the recovery of a job in the background. Errors go to `job.onError`. */
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
    // A new recovery starts when this process is elected or begins to fire the job.
    while (!stopping.aborted && job.isFiring() && (await this.#parts.mayRun(job))) {
      if (await this.#tryToRecover(job)) return;
      await sleep(clock, pauseMs * (0.5 + Math.random() / 2), stopping);
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  /** Resolves with `false` if the store did not answer or another attempt is needed. */
  async #tryToRecover(job: PlannedJob): Promise<boolean> {
    const { locks, deadRunWatcher } = this.#parts;
    const params = buildRecoveryProbe(job, locks);
    const { tick } = params;
    const result = await locks.claimTick(job.key, params);
    if (result instanceof Lease || result.kind !== 'refused') return false;
    const nowMs = tick.tickMs - result.aheadMs;
    if (retriesDeadRuns(job)) {
      // Each of these ticks has its own store key, so one probe does not cover them all.
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

  /** Claims the newest tick that is past by the store's clock. If another replica has claimed it, nothing is left to do. */
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

  /** Watches a run that may have begun before this process started, so that no timer of this process has met it. */
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
      return false; // The failed request itself has emitted `unavailable`.
    }
  }
}

const isPlanned = (job: Job): job is PlannedJob => job.plan !== undefined;

const isKnown = ({ kind }: AcquireResult) => kind !== 'unknown';
