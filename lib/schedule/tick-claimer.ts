import type { TickSkipReason } from '../core/events.js';
import { tickStoreKey } from '../core/key.js';
import { Lease } from '../core/leases/lease.js';
import type { Locks } from '../core/locks.js';
import type { NotGranted } from '../core/leases/acquirer.js';
import { sleep } from '../core/sleep.js';
import type { Job } from './job.js';
import type { Tick } from './plan/tick-calculator.js';
import { ClockSkewReporter } from './recovery/clock-skew-reporter.js';
import { DeadRunReporter } from './recovery/dead-run-reporter.js';
import type { MissedTickRunner } from './recovery/missed-tick-runner.js';
import type { DeadRunWatcher } from './recovery/dead-run-watcher.js';
import type { JobElections } from './registry/job-activator.js';
import { buildClaimParams, jitterMsOf } from './tick-claim.js';

/** What may still run a tick after its claim was refused. */
interface Recovery {
  readonly deadRunWatcher: DeadRunWatcher;
  readonly missedTickRunner: MissedTickRunner;
}

interface TickClaimerParts {
  readonly locks: Locks;
  readonly elections: JobElections;
  readonly recovery: () => Recovery;
}

/** Claims ticks of jobs in the store. Each refusal has a reason to skip the tick, and may start a recovery. */
export class TickClaimer {
  readonly #locks: Locks;
  readonly #elections: JobElections;
  readonly #recovery: () => Recovery;
  readonly #deadRunReporter: DeadRunReporter;
  readonly #clockSkewReporter: ClockSkewReporter;
  #callCount = 0;

  constructor({ locks, elections, recovery }: TickClaimerParts) {
    this.#locks = locks;
    this.#elections = elections;
    this.#recovery = recovery;
    this.#deadRunReporter = new DeadRunReporter(locks);
    this.#clockSkewReporter = new ClockSkewReporter(locks);
  }

  /** Claims the tick when it is due. Resolves with `undefined` if the job was deleted, stopped or unregistered meanwhile. */
  async claimWhenDue(job: Job, tick: Tick): Promise<Lease | TickSkipReason | undefined> {
    const { clock, stopping } = this.#locks;
    // Calling the method yourself also runs a job without an active timer.
    const wasFiring = job.isFiring();
    await sleep(clock, jitterMsOf(job, tick), stopping);
    while (!stopping.aborted) {
      if (!(await this.mayRun(job))) return 'not-leader';
      if (wasFiring && !job.isFiring()) return undefined;
      const params = buildClaimParams(job, tick, this.#locks);
      const result = await this.#locks.claimTick(job.key, params);
      if (result instanceof Lease) return result;
      if (result.kind !== 'refused' || result.reason !== 'early') {
        if (params.storeKey !== undefined && result.kind !== 'unknown')
          this.#deadRunReporter.checkRunUntilEnd(job, params.storeKey);
        else if (isBlockedByRun(result)) this.#deadRunReporter.checkBlockingRun(job);
        else if (isAlreadyClaimed(result)) this.#clockSkewReporter.reportClaimed(job, tick);
        return this.handleRefusal(job, tick, result);
      }
      this.#clockSkewReporter.reportEarly(job, result.aheadMs);
      // The clock of this process is ahead of the store's. The first replica to claim the tick when it is due runs it.
      await sleep(clock, Math.max(result.aheadMs, 1), stopping);
    }
    return 'shutdown';
  }

  /** Starts what may still run the tick, or an unfinished earlier one, without a timer. Returns the reason of the skip. */
  handleRefusal(job: Job, tick: Tick, result: NotGranted): TickSkipReason {
    if (result.kind === 'unknown') {
      // The claim may have been granted and is then withdrawn, which looks like a dead run. One recovery finds all such ticks.
      this.#recovery().missedTickRunner.recover(job);
      return 'unavailable';
    }
    if (result.kind === 'taken') return 'overlap';
    if (result.unfinishedMs !== undefined) {
      void this.#recovery().deadRunWatcher.watch(job, { ...tick, tickMs: result.unfinishedMs }, 0);
      return 'overlap';
    }
    if (result.retryInMs !== undefined) {
      void this.#recovery().deadRunWatcher.watch(job, tick, result.retryInMs);
    }
    return result.reason === 'stale' ? 'stale' : 'taken';
  }

  /** Whether this process may run the job: with `leader`, only while it leads. */
  async mayRun({ options: { leader } }: Job): Promise<boolean> {
    return leader === undefined || (await this.#elections.confirmTerm(leader)) !== undefined;
  }

  /** Claims a tick whose timer fired long ago or never. */
  async claimNow(
    job: Job,
    tick: Tick,
    isMissed: boolean,
  ): Promise<Lease | NotGranted | TickSkipReason | undefined> {
    if (this.#locks.stopping.aborted) return 'shutdown';
    if (!(await this.mayRun(job))) return 'not-leader';
    if (!job.isFiring()) return undefined;
    return this.#locks.claimTick(job.key, buildClaimParams(job, tick, this.#locks, { isMissed }));
  }

  /** Claims a run without a tick: it is refused only while another run is in progress. */
  async claimWithoutTick(job: Job): Promise<Lease | TickSkipReason> {
    const { namespace } = this.#locks;
    const hasOwnStoreKey = job.options.overlap === 'allow';
    const storeKey = hasOwnStoreKey ? tickStoreKey(namespace, job.key, (this.#callCount += 1)) : undefined;
    const lease = await this.#locks.claimTick(job.key, { leaseMs: job.options.leaseMs, storeKey });
    if (lease instanceof Lease) return lease;
    return lease.kind === 'unknown' ? 'unavailable' : 'overlap';
  }
}

/** Whether the tick was refused because a run is in progress. */
const isBlockedByRun = (result: NotGranted) =>
  result.kind === 'taken' || (result.kind === 'refused' && result.retryInMs !== undefined);

const isAlreadyClaimed = (result: NotGranted) => result.kind === 'refused' && result.reason === 'claimed';
