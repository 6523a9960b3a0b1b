import type { TickSkipReason } from '../core/events.js';
import type { NotGranted } from '../core/leases/acquirer.js';
import { LockHandle } from '../core/leases/lock-handle.js';
import type { ClaimedRun } from './job-run.js';
import { type DeferredTick, DeferredTicks } from './deferred-ticks.js';
import type { JobInvoker } from './job-invoker.js';
import type { Job } from './job.js';
import { ManualRunWatcher } from './manual-run-watcher.js';
import type { Tick, TickCalculator } from './plan/tick-calculator.js';
import type { RecoveryParts } from './recovery/dead-run-watcher.js';
import { Recovery } from './recovery/recovery.js';
import type { ClaimOutcome } from './tick-claimer.js';

interface TickRunsParts extends Omit<RecoveryParts, 'invoke'> {
  readonly jobInvoker: JobInvoker;
}

interface AnsweredClaim extends DeferredTick {
  readonly outcome: ClaimOutcome;
  /** The calls of `runNow()` when the claim was sent. */
  readonly calls: Promise<unknown> | undefined;
  /** Whether the tick was refused before because of a manual run, which has ended. */
  readonly isRepeated?: boolean;
}

/** Claims planned ticks for runs: those of timers, and those that the recovery or a manual run has left. */
export class TickRuns {
  readonly recovery: Recovery;
  readonly deferred: DeferredTicks;
  readonly #manualRunWatcher: ManualRunWatcher;
  readonly #parts: TickRunsParts;

  constructor(parts: TickRunsParts) {
    const { locks, claimer, planAges, context } = parts;
    const invoke: RecoveryParts['invoke'] = (...invocation) => this.#invoke(...invocation);
    this.#parts = parts;
    this.#manualRunWatcher = new ManualRunWatcher(locks);
    this.recovery = new Recovery({ locks, claimer, planAges, context, invoke });
    this.deferred = new DeferredTicks({
      claimAgain: (job, deferred) => this.#claimAgain(job, deferred),
      onSkipped: (job, { tickMs }) => this.emitSkipped(job, tickMs, 'overlap'),
    });
  }

  /** Claims the tick that the timer of the job has just fired for. */
  async claimDue(job: Job, tickCalculator: TickCalculator): Promise<ClaimedRun | undefined> {
    const { locks, claimer } = this.#parts;
    const tick = tickCalculator.calculateTick(locks.clock.wallMs());
    if (!tick) return undefined;
    const calls = this.deferred.callsOf(job);
    const outcome = await claimer.claimWhenDue(job, tick);
    return this.#accept(job, { tick, outcome, calls });
  }

  emitSkipped(job: Job, tickMs: number, reason: TickSkipReason): void {
    this.#parts.locks.events.emit('tick-skipped', { job: job.key, tick: new Date(tickMs), reason });
  }

  /** The run of a granted tick. A refused one is skipped, or deferred until a manual run has ended. */
  async #accept(
    job: Job,
    answered: AnsweredClaim,
    isReported: (reason: TickSkipReason) => boolean = () => true,
  ): Promise<ClaimedRun | undefined> {
    const { tick, outcome } = answered;
    if (outcome instanceof LockHandle) return { tickMs: tick.tickMs, lock: outcome };
    if (await this.#defer(job, answered)) return undefined;
    const reason = this.recovery.handleRefusal(job, tick, outcome);
    if (reason !== undefined && isReported(reason)) this.emitSkipped(job, tick.tickMs, reason);
    return undefined;
  }

  /** Whether the tick was refused because of a run while `runNow()` was called, here or elsewhere: it may be that run. */
  async #defer(
    job: Job,
    { outcome, calls, isRepeated = false, ...deferred }: AnsweredClaim,
  ): Promise<boolean> {
    const isTaken =
      typeof outcome === 'object' && !(outcome instanceof LockHandle) && outcome.kind === 'taken';
    if (!isTaken) return false;
    const current = this.deferred.callsOf(job) ?? calls;
    if (current) this.deferred.defer(job, deferred, current);
    else if (await this.#manualRunWatcher.isRunning(job, { orRecently: !isRepeated }))
      this.deferred.defer(job, deferred, this.#manualRunWatcher.whenEnded(job));
    else return false;
    return true;
  }

  #claimAgain(job: Job, { tick, claimed }: DeferredTick): void {
    const { claimer, context, jobInvoker } = this.#parts;
    const claim = async () => {
      const outcome = await claimer.claimNow(job, tick, claimed);
      return this.#accept(job, { tick, claimed, outcome, calls: undefined, isRepeated: true });
    };
    void context
      .runInAsyncScope(() => jobInvoker.invoke(job, claim))
      .catch((error: unknown) => job.onError(error));
  }

  /**
   * Invokes the job for a tick whose timer fired long ago or never. Resolves with the result of the claim, while the run goes on;
   * with `undefined` if other decorators have ended without calling the method. A later call still claims the tick.
   */
  #invoke(job: Job, tick: Tick, claimed?: Tick): Promise<LockHandle | NotGranted | undefined> {
    const { claimer, jobInvoker } = this.#parts;
    return new Promise((resolve) => {
      let isLate = false;
      const claim = async () => {
        const calls = this.deferred.callsOf(job);
        const outcome = await claimer.claimNow(job, tick, claimed);
        if (typeof outcome === 'object') resolve(outcome);
        const answered = { tick, claimed, outcome, calls };
        // Other reasons are reported by the caller, unless it no longer waits for the result.
        return this.#accept(job, answered, (reason) => isLate || reason === 'stale');
      };
      const onEnd = () => {
        isLate = true;
        resolve(undefined);
      };
      void jobInvoker
        .invoke(job, claim)
        .catch((error: unknown) => job.onError(error))
        .finally(onEnd);
    });
  }
}
