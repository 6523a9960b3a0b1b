import type { ClaimTickParams } from '../core/job-locks.js';
import type { TickRefused } from '../core/tick.js';
import { unknownResult } from '../core/unknown-result.js';
import type { NotGranted } from '../core/leases/acquirer.js';
import { LockHandle } from '../core/leases/lock-handle.js';
import type { Locks } from '../core/locks.js';
import { sleep } from '../core/clock.js';
import type { Elections } from '../election/elections.js';
import type { Job } from './job.js';
import type { Tick } from './plan/tick-calculator.js';
import { ClockSkewReporter } from './reports/clock-skew-reporter.js';
import { DeadRunReporter } from './reports/dead-run-reporter.js';
import { PauseReporter } from './reports/pause-reporter.js';
import { buildClaimParams, jitterMsOf } from './claim-params.js';

/** The result of a claim, or why there was none; `undefined` if the job was deleted, stopped or unregistered meanwhile. */
export type ClaimOutcome = LockHandle | NotGranted | 'not-leader' | 'shutdown' | undefined;

/** Claims ticks of jobs in the store. */
export class TickClaimer {
  readonly #locks: Locks;
  readonly #elections: Elections;
  readonly #deadRunReporter: DeadRunReporter;
  readonly #clockSkewReporter: ClockSkewReporter;
  readonly #pauseReporter = new PauseReporter();

  constructor(locks: Locks, elections: Elections) {
    this.#locks = locks;
    this.#elections = elections;
    this.#deadRunReporter = new DeadRunReporter(locks);
    this.#clockSkewReporter = new ClockSkewReporter(locks);
  }

  /** Claims the tick when it is due. */
  async claimWhenDue(job: Job, tick: Tick): Promise<ClaimOutcome> {
    const { clock, stopping } = this.#locks;
    // Calling the method yourself also runs a job without an active timer.
    const wasFiring = job.isFiring();
    await sleep(clock, jitterMsOf(job, tick), stopping, { awaited: true });
    while (!stopping.aborted) {
      const refusal = await this.#refusalByLeader(job);
      if (wasFiring && !job.isFiring()) return undefined;
      const params = buildClaimParams(job, tick, this.#locks);
      const result = refusal ?? (await this.#claim(job, params));
      if (result === 'shutdown') return result;
      if (result !== 'not-leader') this.#pauseReporter.report(job, isPaused(result));
      if (result instanceof LockHandle) return result;
      const aheadMs = this.#aheadMs(params, result);
      if (aheadMs === undefined) {
        if (result !== 'not-leader') this.#reportRefusal(job, tick, { result, storeKey: params.storeKey });
        return result;
      }
      if (isEarly(result)) this.#clockSkewReporter.reportEarly(job, aheadMs);
      // The first replica to claim the tick when it is due runs it.
      await sleep(clock, Math.max(aheadMs, 1), stopping, { awaited: true });
    }
    return 'shutdown';
  }

  /**
   * How far ahead the tick is, if this result does not decide it. The timer of an interval fires up to half a period before its
   * tick: until then this process may become leader, the job may be resumed, and the store may be back.
   */
  #aheadMs({ tick }: ClaimTickParams, result: NotGranted | 'not-leader'): number | undefined {
    let aheadMs: number | undefined;
    // The clock of this process may be ahead of the store's.
    if (isEarly(result) || isPaused(result)) ({ aheadMs } = result);
    else if (result === 'not-leader' || result.kind === 'unknown')
      aheadMs = tick.tickMs - tick.maxEarlyMs - this.#locks.clock.wallMs();
    return aheadMs !== undefined && aheadMs > 0 ? aheadMs : undefined;
  }

  #reportRefusal(
    job: Job,
    tick: Tick,
    { result, storeKey }: { result: NotGranted; storeKey: string | undefined },
  ): void {
    if (result.kind === 'unknown' || isPaused(result)) return;
    if (storeKey !== undefined) this.#deadRunReporter.checkRunUntilEnd(job, storeKey);
    else if (result.kind === 'taken' || result.retryInMs !== undefined)
      this.#deadRunReporter.checkBlockingRun(job);
    else if (result.reason === 'claimed') this.#clockSkewReporter.reportClaimed(job, tick);
    else if (result.reason === 'stale') this.#clockSkewReporter.reportStale(job, tick, result.aheadMs);
  }

  /** Whether this process may run the job: with `leader`, only while it leads. `undefined` while the store does not say so. */
  async mayRun({ options: { leader } }: Job): Promise<boolean | undefined> {
    if (leader === undefined || (await this.#elections.confirmTerm(leader)) !== undefined) return true;
    return this.#elections.isInDoubt(leader) ? undefined : false;
  }

  async #refusalByLeader(job: Job): Promise<NotGranted | 'not-leader' | undefined> {
    const mayRun = await this.mayRun(job);
    if (mayRun === undefined)
      return unknownResult(new Error('the store did not say whether this process still leads'));
    return mayRun ? undefined : 'not-leader';
  }

  /** Claims a tick whose timer fired long ago or never. */
  async claimNow(job: Job, tick: Tick, claimed?: Tick): Promise<ClaimOutcome> {
    if (this.#locks.stopping.aborted) return 'shutdown';
    const refusal = await this.#refusalByLeader(job);
    if (refusal !== undefined) return refusal;
    if (!job.isFiring()) return undefined;
    return this.#claim(job, buildClaimParams(job, tick, this.#locks, claimed));
  }

  async #claim(job: Job, params: ClaimTickParams): Promise<LockHandle | NotGranted | 'shutdown'> {
    const { storeKey } = params;
    const refusal =
      storeKey === undefined ? undefined : await this.#refusalByPause(job, { ...params, storeKey });
    // The application may have begun to drain meanwhile, and does not wait for a run that begins later.
    if (this.#locks.stopping.aborted) return 'shutdown';
    return refusal ?? this.#locks.jobs.claimTick(job.key, params);
  }

  /**
   * The pause of a job is part of its own key, and of the claim of that key. A tick with another key needs a look at it. Ticks of
   * a pause that has ended count as claimed, but a run that has begun may be retried.
   */
  async #refusalByPause(
    job: Job,
    { tick: { tickMs }, storeKey }: ClaimTickParams & { readonly storeKey: string },
  ): Promise<NotGranted | undefined> {
    const { jobs } = this.#locks;
    const state = await jobs.tryReadTicks(job.key);
    if (!state) return unknownResult(new Error('the store did not say whether the job is paused'));
    const aheadMs = tickMs - state.nowMs;
    if (state.isPaused) return { kind: 'refused', reason: 'paused', aheadMs };
    const { claimed } = state;
    // A job without a plan runs once for each deployment, whenever that is.
    if (!job.plan || claimed?.attempt !== 0 || tickMs > claimed.tickMs) return undefined;
    const own = await jobs.tryReadTicks(job.key, storeKey);
    if (!own) return unknownResult(new Error('the store did not say whether the tick was claimed'));
    return own.claimed && own.claimed.attempt > 0
      ? undefined
      : { kind: 'refused', reason: 'claimed', aheadMs };
  }
}

type Answer = LockHandle | NotGranted | 'not-leader';
type RefusedFor<Reason> = TickRefused & { readonly reason: Reason };

const isPaused = (result: Answer): result is RefusedFor<'paused'> => isRefused(result, 'paused');

const isEarly = (result: Answer): result is RefusedFor<'early'> => isRefused(result, 'early');

const isRefused = (result: Answer, reason: TickRefused['reason']) =>
  typeof result === 'object' &&
  !(result instanceof LockHandle) &&
  result.kind === 'refused' &&
  result.reason === reason;
