import { type TickState, type TickVerdict, findDeadTick, judgeTick } from '../../core/tick.js';
import type { TickSkipReason } from '../../core/events.js';
import { LockHandle } from '../../core/leases/lock-handle.js';
import { sleep } from '../../core/clock.js';
import { type Job, type PlannedJob, isPlanned, retriesDeadRuns, runsMissedTicks } from '../job.js';
import type { Plan } from '../plan/plan.js';
import { type Tick, createTick } from '../plan/tick-calculator.js';
import { buildClaimParams, jitterMsOf, maxFiringDelayMsOf } from '../claim-params.js';
import { mayOverlap, ownStoreKey } from '../tick-keys.js';
import type { ClaimOutcome } from '../tick-claimer.js';
import { DeadRunWatcher, type RecoveryParts } from './dead-run-watcher.js';
import { OwnTickSearch } from './own-tick-search.js';
import { endWithoutRun, originOf, unplannedTimeBy } from './passed-over-ticks.js';

/** Pauses between two attempts while the store does not answer: they double from the first to the maximum. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;
/** How long after its jitter a tick may reach the store. */
const MAX_CLAIM_MS = 1_000;

/**
 * Runs ticks that no timer fires: those of dead runs, and those at which all replicas were down. It looks for both when this
 * process begins to fire a job, and when the store answers again. Otherwise it watches the runs that refused ticks show.
 */
export class Recovery {
  readonly #parts: RecoveryParts;
  readonly #deadRunWatcher: DeadRunWatcher;
  readonly #ownTickSearch: OwnTickSearch;
  readonly #recovering = new Set<Job>();
  /** Those whose recovery was asked for while one was in progress. */
  readonly #toRepeat = new Set<Job>();
  /** Those with a second look to come. */
  readonly #toLookAgain = new Set<Job>();
  readonly #hadPlan = new WeakSet<Job>();

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
    this.#deadRunWatcher = new DeadRunWatcher(parts);
    this.#ownTickSearch = new OwnTickSearch(parts.locks);
  }

  /** Starts what may still run the tick, or an unfinished earlier one, without a timer. Returns the reason of the skip. */
  handleRefusal(job: Job, tick: Tick, result: Exclude<ClaimOutcome, LockHandle>): TickSkipReason | undefined {
    if (typeof result !== 'object') return result;
    if (result.kind === 'unknown') {
      // The claim may have been granted and is then withdrawn, which looks like a dead run. One recovery finds all such ticks.
      this.recover(job);
      // No recovery looks for the tick of a job that runs once for each deployment.
      if (!job.plan && retriesDeadRuns(job)) void this.#deadRunWatcher.watch(job, tick, FIRST_PAUSE_MS);
      return 'unavailable';
    }
    // The lock of the job is taken, by another run of it. A tick is taken if it was claimed elsewhere, which ends below.
    if (result.kind === 'taken') return 'overlap';
    if (result.unfinishedMs !== undefined) {
      void this.#deadRunWatcher.watch(job, { ...tick, tickMs: result.unfinishedMs }, 0);
      return 'overlap';
    }
    if (result.retryInMs !== undefined) void this.#deadRunWatcher.watch(job, tick, result.retryInMs);
    return result.reason === 'stale' || result.reason === 'paused' ? result.reason : 'taken';
  }

  /** Starts the recovery if the schedule was changed at run time: what was due before that does not count as missed. */
  recoverIfRescheduled(job: Job): void {
    if (this.#rememberPlan(job)) this.recover(job);
  }

  /** Starts the recovery of a job in the background. Errors go to `job.onError`. A second look starts no further one. */
  recover(job: Job, { isSecondLook = false } = {}): void {
    this.#rememberPlan(job);
    if (!(runsMissedTicks(job) || retriesDeadRuns(job))) return;
    // A recovery in progress may have read the store before this call.
    if (this.#recovering.has(job)) {
      this.#toRepeat.add(job);
      return;
    }
    this.#recovering.add(job);
    void this.#parts.context
      .runInAsyncScope(() => this.#recover(job, isSecondLook))
      .catch((error: unknown) => job.onError(error))
      .finally(() => {
        this.#recovering.delete(job);
        if (this.#toRepeat.delete(job)) this.recover(job);
      });
  }

  /** Returns whether the job had another plan before. */
  #rememberPlan(job: Job): boolean {
    const plan = planOf(job);
    if (!plan || !this.#parts.planAges.remember(plan)) return false;
    const hadPlan = this.#hadPlan.has(job);
    this.#hadPlan.add(job);
    return hadPlan;
  }

  async #recover(job: Job, isSecondLook: boolean): Promise<void> {
    if (!isPlanned(job)) return;
    const { clock, stopping } = this.#parts.locks;
    let pauseMs = FIRST_PAUSE_MS;
    // A new recovery starts when this process is elected or begins to fire the job.
    while (!stopping.aborted && job.isFiring()) {
      const mayRun = await this.#parts.claimer.mayRun(job);
      if (mayRun === false || (mayRun && (await this.#tryToRecover(job, isSecondLook)))) return;
      await sleep(clock, pauseMs * (0.5 + Math.random() / 2), stopping);
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
  }

  /** Resolves with `false` if the store did not answer or another attempt is needed. */
  async #tryToRecover(job: PlannedJob, isSecondLook: boolean): Promise<boolean> {
    const { locks } = this.#parts;
    const ownNowMs = locks.clock.wallMs();
    const latest = createTick(job.plan, job.plan.latest(ownNowMs) ?? ownNowMs);
    const { storeKey } = buildClaimParams(job, latest, locks);
    const state = runsMissedTicks(job)
      ? await this.#register(job, latest, ownNowMs)
      : await locks.jobs.tryReadTicks(job.key, storeKey);
    if (!state) return false;
    const { nowMs, claimed } = state;
    const ownTicks = await this.#ownTickSearch.find(job, nowMs);
    if (!ownTicks) return false;
    for (const tick of ownTicks) void this.#deadRunWatcher.watch(job, tick, 0);
    if (!claimed) return true;
    const newest = createTick(job.plan, claimed.tickMs);
    if (state.isPaused) {
      // Its ticks count as claimed when it is resumed, but a run in progress may die after that.
      if (retriesDeadRuns(job)) void this.#deadRunWatcher.watch(job, newest, 0);
      return true;
    }
    const { tick: claim } = buildClaimParams(job, newest, locks);
    // A tick with a key of its own is among those above.
    if (!mayOverlap(job) && findDeadTick(claim, state) !== undefined) {
      await this.#deadRunWatcher.watch(job, newest, 0);
      return false;
    }
    this.#watchCurrentRun(job, newest, judgeTick(claim, state));
    if (!runsMissedTicks(job)) return true;
    if (!(await this.#runMissedTick(job, state, newest))) return false;
    if (!isSecondLook) void this.#lookAgain(job, latest.tickMs - nowMs);
    return true;
  }

  /**
   * If the clock of this process is ahead, its timer has fired for a tick that the store does not know to be due yet. Starts
   * another recovery when the tick is due. The present one ends, so that others can begin meanwhile.
   */
  async #lookAgain(job: PlannedJob, inMs: number): Promise<void> {
    const { clock, stopping } = this.#parts.locks;
    if (inMs <= 0 || this.#toLookAgain.has(job)) return;
    this.#toLookAgain.add(job);
    await sleep(clock, inMs, stopping);
    this.#toLookAgain.delete(job);
    if (!stopping.aborted) this.recover(job, { isSecondLook: true });
  }

  /**
   * The first registration makes all ticks before it count as claimed. A replica without `onMissed` may still wait for the
   * jitter of the latest one, so it waits for that, too.
   */
  async #register(job: PlannedJob, latest: Tick, nowMs: number): Promise<TickState | undefined> {
    const { clock, jobs, stopping } = this.#parts.locks;
    const jitterMs = jitterMsOf(job, latest);
    const leftMs = latest.tickMs + jitterMs + marginMs(latest) - nowMs;
    if (jitterMs > 0 && leftMs > 0) {
      const state = await jobs.tryReadTicks(job.key);
      if (!state || state.claimed) return state;
      await sleep(clock, leftMs, stopping);
    }
    return job.isFiring() ? jobs.registerTicks(job.key) : undefined;
  }

  /** Watches a run that may have begun before this process started, so that no timer of this process has met it. */
  #watchCurrentRun(job: PlannedJob, tick: Tick, verdict: TickVerdict): void {
    const retryInMs = verdict.kind === 'refused' ? verdict.retryInMs : undefined;
    if (retryInMs !== undefined) void this.#deadRunWatcher.watch(job, tick, retryInMs);
  }

  /**
   * Makes a past time the newest tick, without a run: what was due before it was none of this plan. `false` if that has to be
   * repeated.
   */
  #passOver(job: PlannedJob, nowMs: number, claimed: Tick): Promise<boolean> {
    const { locks } = this.#parts;
    const latest = createTick(job.plan, job.plan.latest(nowMs) ?? 0);
    // Others may be about to claim a tick of the last second, or the latest one, whose timer may fire late.
    const pastMs = nowMs - marginMs(latest);
    const isPending = pastMs <= latest.tickMs + maxFiringDelayMsOf(job, latest) + jitterMsOf(job, latest);
    const passedMs = Math.max(isPending ? 0 : pastMs, claimed.tickMs + 1);
    const passed = createTick(job.plan, unplannedTimeBy(job.plan, passedMs));
    const { tick, ...params } = buildClaimParams(job, passed, locks, claimed);
    // It runs nothing, so it is never too late for it.
    return endWithoutRun(job, { ...params, tick: { ...tick, staleAfterMs: Number.MAX_SAFE_INTEGER } }, locks);
  }

  /** Claims the newest tick that is past by the store's clock. If another replica has claimed it, nothing is left to do. */
  async #runMissedTick(job: PlannedJob, state: TickState, claimed: Tick): Promise<boolean> {
    const { locks, invoke, planAges } = this.#parts;
    const tickMs = job.plan.latest(state.nowMs);
    const isDue = tickMs !== undefined && tickMs >= claimed.tickMs;
    // Runs that may overlap have keys of their own, so which of them is the newest is not known.
    const origin = await originOf(job, claimed.tickMs, locks);
    if (origin === undefined) return false;
    // The schedule has changed: what was due since this process has the plan is missed, and what was due before was not due.
    if (origin === 'another-plan' && !(isDue && tickMs > planAges.sinceMs(job.plan, state.nowMs)))
      return this.#passOver(job, state.nowMs, claimed);
    // The state is that of the shared key, where registrations are recorded.
    if (!isDue) return true;
    const tick = createTick(job.plan, tickMs);
    const verdict = judgeTick(buildClaimParams(job, tick, locks, claimed).tick, state);
    if (verdict.kind === 'refused' && verdict.reason === 'claimed') return true;
    // The method is called only for a claim that may be granted: other decorators may count its calls.
    if (verdict.kind === 'taken') return false;
    // The tick may also have been claimed with a key of its own: under this deployment or an earlier one.
    const own = await locks.jobs.tryReadTicks(job.key, ownStoreKey(job.key, tickMs, locks));
    if (!own) return false;
    if (own.claimed) return true;
    const result = await invoke(job, tick, claimed);
    if (result === undefined || result instanceof LockHandle) return true;
    // A run in progress, which may be that of a retry, keeps the tick until it ends.
    return result.kind !== 'unknown' && result.kind !== 'taken';
  }
}

/** With the jitter, which takes at most four fifths of the period, it ends before the next tick. */
const marginMs = ({ periodMs }: Tick) => Math.min(MAX_CLAIM_MS, periodMs / 10);

/** A plan that cannot be read is reported by whoever needs it. */
function planOf(job: Job): Plan | undefined {
  try {
    return job.plan;
  } catch {
    return undefined;
  }
}
