import type { ClaimedTick, TickClaim, TickState } from '../../core/backend.js';
import { tickStoreKey } from '../../core/key.js';
import { Lease } from '../../core/leases/lease.js';
import { sleep } from '../../core/sleep.js';
import { findDeadTick, judgeTick } from '../../core/tick-verdict.js';
import { type Job, retriesDeadRuns, runsMissedTicks } from '../job.js';
import type { Plan } from '../plan/plan.js';
import { createTick } from '../plan/tick-calculator.js';
import { buildClaimParams, listStoredTicks } from '../tick-claim.js';
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
    const ownNowMs = locks.clock.wallMs();
    const latest = createTick(job.plan, job.plan.latest(ownNowMs) ?? ownNowMs);
    const { tick: claim, storeKey } = buildClaimParams(job, latest, locks);
    const state = runsMissedTicks(job)
      ? await locks.registerTicks(job.key)
      : await locks.readTicks(job.key, storeKey);
    if (!state) return false;
    const { nowMs, claimed } = state;
    if (retriesDeadRuns(job)) {
      // Each of these ticks has its own store key, so the state of one does not cover them all.
      for (const each of listStoredTicks(job, nowMs, locks) ?? []) void deadRunWatcher.watch(job, each, 0);
    }
    const deadTickMs = findDeadTick(claim, state);
    if (deadTickMs !== undefined) {
      await deadRunWatcher.watch(job, createTick(job.plan, deadTickMs), 0);
      return false;
    }
    if (claimed) this.#watchCurrentRun(job, { ...claim, tickMs: claimed.tickMs }, state);
    return claimed && runsMissedTicks(job) ? this.#runMissedTick(job, state, claimed) : true;
  }

  /** Watches a run that may have begun before this process started, so that no timer of this process has met it. */
  #watchCurrentRun(job: PlannedJob, claim: TickClaim, state: TickState): void {
    const verdict = judgeTick(claim, state);
    const retryInMs = verdict.kind === 'refused' ? verdict.retryInMs : undefined;
    if (retryInMs === undefined) return;
    void this.#parts.deadRunWatcher.watch(job, createTick(job.plan, claim.tickMs), retryInMs);
  }

  /** Claims the newest tick that is past by the store's clock. If another replica has claimed it, nothing is left to do. */
  async #runMissedTick(job: PlannedJob, state: TickState, claimed: ClaimedTick): Promise<boolean> {
    const { locks, invoke } = this.#parts;
    const tickMs = job.plan.latest(state.nowMs);
    // The state is that of the key of jobs whose ticks do not overlap, where registrations are recorded.
    if (tickMs === undefined || tickMs < claimed.tickMs) return true;
    const tick = createTick(job.plan, tickMs);
    if (job.options.overlap === 'allow') {
      if (tickMs === claimed.tickMs) return true;
    } else {
      const { tick: claim } = buildClaimParams(job, tick, locks, { isMissed: true });
      const verdict = judgeTick(claim, state);
      if (verdict.kind === 'refused' && verdict.reason === 'claimed') return true;
      // The ticks may have overlapped until a deployment changed that. Each then has a key of its own.
      const own = await locks.readTicks(job.key, tickStoreKey(locks.namespace, job.key, tickMs));
      if (!own) return false;
      if (own.claimed) return true;
    }
    const result = await invoke(job, tick, { isMissed: true });
    return result === undefined || result instanceof Lease || result.kind !== 'unknown';
  }
}

const isPlanned = (job: Job): job is PlannedJob => job.plan !== undefined;
