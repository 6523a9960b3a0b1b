import type { AsyncResource } from 'node:async_hooks';
import { LockHandle } from '../../core/leases/lock-handle.js';
import type { Locks } from '../../core/locks.js';
import type { NotGranted } from '../../core/leases/acquirer.js';
import type { Job } from '../job.js';
import type { PlanAges } from '../plan/plan-ages.js';
import type { Tick } from '../plan/tick-calculator.js';
import { buildClaimParams } from '../claim-params.js';
import type { TickClaimer } from '../tick-claimer.js';
import { endWithoutRun, originOf } from './passed-over-ticks.js';
import { readVerdict } from './read-verdict.js';
import { Sleeper } from './sleeper.js';

export interface RecoveryParts {
  readonly locks: Locks;
  readonly claimer: TickClaimer;
  readonly planAges: PlanAges;
  /** The asynchronous context of runs, in which no lock is held. */
  readonly context: AsyncResource;
  /**
   * Invokes a job for a tick; for a missed one, `claimed` is the newest tick that was claimed before it. Resolves with the result
   * of the claim; `undefined` if its method was not called.
   */
  readonly invoke: (job: Job, tick: Tick, claimed?: Tick) => Promise<LockHandle | NotGranted | undefined>;
}

/** Spreads the requests of the replicas that watch the same run. */
const MAX_JITTER_MS = 100;
/** The pause after a request that the store did not answer, or while this process may not run the job. */
const RETRY_PAUSE_MS = 2_000;
/** The longest pause between two invocations if other decorators do not call the method, and between two looks at a paused job. */
const MAX_PAUSE_MS = 15_000;

/** A watch of one tick. It sleeps until the lease of the run should have ended. */
interface Watch {
  readonly ended: Promise<void>;
  readonly sleeper: Sleeper;
}

/** Watches runs of other replicas. Each time their lease should have ended, it claims the tick, which succeeds if they died. */
export class DeadRunWatcher {
  readonly #parts: RecoveryParts;
  /** By job, not by key: a key that is guarded again is another job, and watching for the earlier job ends with it. */
  readonly #watched = new WeakMap<Job, Map<number, Watch>>();

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
  }

  /** Claims the tick after this many ms, and again if needed. Settles when there is nothing more to watch; never rejects. */
  watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const watchedTicks = this.#watched.get(job) ?? new Map<number, Watch>();
    this.#watched.set(job, watchedTicks);
    const existing = watchedTicks.get(tick.tickMs);
    if (existing) {
      // The run may have ended without its end, as when a shutdown has interrupted it.
      existing.sleeper.wakeIn(inMs);
      return existing.ended;
    }
    const { context, locks } = this.#parts;
    const sleeper = new Sleeper(locks.clock, locks.stopping);
    const ended = context
      .runInAsyncScope(() => this.#watch(job, tick, { inMs, sleeper }))
      .catch((error: unknown) => job.onError(error))
      .finally(() => watchedTicks.delete(tick.tickMs));
    watchedTicks.set(tick.tickMs, { ended, sleeper });
    return ended;
  }

  async #watch(job: Job, tick: Tick, { inMs, sleeper }: { inMs: number; sleeper: Sleeper }): Promise<void> {
    const { locks, claimer } = this.#parts;
    let notInvokedPauseMs = RETRY_PAUSE_MS / 2;
    const { takeoverWithinMs, staleAfterMs } = buildClaimParams(job, tick, locks).tick;
    // The run may be interrupted, and its lock released, long before its lease would have ended.
    const longestPauseMs = Math.max((takeoverWithinMs ?? staleAfterMs) / 2, RETRY_PAUSE_MS);
    let pauseMs: number | undefined = inMs;
    while (pauseMs !== undefined) {
      pauseMs = Math.min(pauseMs, longestPauseMs);
      await sleeper.sleep(pauseMs + Math.random() * Math.min(pauseMs, MAX_JITTER_MS));
      // If the job is started again, its recovery finds the dead run.
      if (locks.stopping.aborted || !job.isFiring()) return;
      const mayRun = await claimer.mayRun(job);
      // The recovery of the next leader finds the dead run.
      if (mayRun === false) return;
      if (mayRun === undefined) {
        pauseMs = RETRY_PAUSE_MS;
        continue;
      }
      const result = await this.#tryToTakeOver(job, tick);
      if (result === 'not-called') notInvokedPauseMs = Math.min(notInvokedPauseMs * 2, MAX_PAUSE_MS);
      pauseMs = result === 'not-called' ? notInvokedPauseMs : result;
    }
  }

  /**
   * Resolves with the pause before the next try; `undefined` if the tick can no longer be claimed. Asks the store first, so that
   * other decorators of the method do not run while the watched run is still in progress.
   */
  async #tryToTakeOver(job: Job, tick: Tick): Promise<number | undefined | 'not-called'> {
    const { locks, invoke } = this.#parts;
    const read = await readVerdict(job, tick, locks);
    if (!read) return RETRY_PAUSE_MS;
    const { verdict, state, storeKey } = read;
    if (verdict.kind !== 'grant') return getRetryDelayMs(verdict);
    // Nobody has claimed the tick, so no run of it has died.
    if (verdict.attempt === 1) return undefined;
    const jobState = storeKey === undefined ? state : await locks.jobs.tryReadTicks(job.key);
    if (!jobState) return RETRY_PAUSE_MS;
    // After the pause, a run that has died counts as ended, unless it has a key of its own.
    if (jobState.isPaused) return storeKey === undefined ? undefined : MAX_PAUSE_MS;
    const origin = await originOf(job, tick.tickMs, locks);
    if (origin === undefined) return RETRY_PAUSE_MS;
    // A replica claimed the tick only to skip it, and died or lost the reply before it ended that claim.
    if (origin === 'no-run') {
      const hasEnded = await endWithoutRun(job, buildClaimParams(job, tick, locks), locks);
      return hasEnded ? undefined : RETRY_PAUSE_MS;
    }
    const result = await invoke(job, tick);
    return result ? getRetryDelayMs(result) : 'not-called';
  }
}

/** Returns `undefined` if the tick can no longer be claimed. */
function getRetryDelayMs(result: LockHandle | NotGranted): number | undefined {
  if (result instanceof LockHandle) return undefined;
  if (result.kind === 'unknown') return RETRY_PAUSE_MS;
  // The job may be resumed while the watched run is in progress.
  if (result.kind === 'refused' && result.reason === 'paused') return MAX_PAUSE_MS;
  return result.kind === 'refused' ? result.retryInMs : undefined;
}
