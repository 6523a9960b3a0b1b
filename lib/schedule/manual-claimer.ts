import { sleep } from '../core/clock.js';
import { unavailableError } from '../core/error-factories.js';
import { LockConfigError, LockUnavailableError } from '../core/errors.js';
import type { LockEventName } from '../core/events.js';
import { manualStoreKey } from '../core/store-key.js';
import { LockHandle } from '../core/leases/lock-handle.js';
import type { LockRecord } from '../core/lock-record.js';
import type { Locks } from '../core/locks.js';
import { type TickClaim, findDeadTick } from '../core/tick.js';
import { mayOverlap } from './tick-keys.js';
import { buildClaimParams } from './claim-params.js';
import { type Job, isPlanned, retriesDeadRuns } from './job.js';
import { createTick } from './plan/tick-calculator.js';
import { endWithoutRun } from './recovery/passed-over-ticks.js';
import { type CronRunRecord, readRunHistory, runIdOf } from './run-record.js';
import type { TickClaimer } from './tick-claimer.js';

/** How a call waits for another one that has not begun its run yet. */
const LOOKS_WITHOUT_PAUSE = 3;
const LOOK_PAUSE_MS = 50;
/** How long a call waits for the record of a run that has ended: entries of the history are written in the background. */
const MAX_RECORD_WAIT_MS = 2_000;
/** The longest lease of the lock that keeps other calls out. If its process dies before the run began, they wait that long. */
const MAX_TURN_LEASE_MS = 10_000;
/** Not published of the lock that keeps other calls out: the lock of the run has these events. */
const HIDDEN_OF_TURN: ReadonlySet<LockEventName> = new Set<LockEventName>([
  'renewed',
  'renewal-failed',
  'released',
  'lost',
  'unavailable',
]);

/** A run that may begin. */
export interface ManualClaim {
  readonly tickMs: number;
  /** The lock of the run. */
  readonly lock: LockHandle;
  /** The lock that keeps other calls of `runNow()` out until the run has ended; `undefined` if it is the lock of the run. */
  readonly turn: LockHandle | undefined;
}

/**
 * Claims runs for `CronRuns.runNow()`. They have no tick, so that no planned tick counts as claimed because of them.
 *
 * Calls are numbered in the store: each reads the number of the last one, and claims the next as a tick of a key of its own.
 * Of several calls at once, the store grants that number to one. It holds the key until its run has ended.
 */
export class ManualClaimer {
  readonly #locks: Locks;
  readonly #ticks: TickClaimer;

  constructor(locks: Locks, ticks: TickClaimer) {
    this.#locks = locks;
    this.#ticks = ticks;
  }

  /**
   * Returns the claim, or the record of another run: one in progress, or that of a call at the same time.
   *
   * @throws LockUnavailableError, LockShutdownError, or LockConfigError if this process may not run the job
   */
  async claim(job: Job): Promise<ManualClaim | CronRunRecord> {
    requirePlan(job);
    const tickMs = this.#now(job);
    const turn = await this.#claimTurn(job);
    if (!(turn instanceof LockHandle)) return turn;
    if (mayOverlap(job)) return { tickMs, lock: turn, turn: undefined };
    let lock: LockHandle | undefined;
    try {
      const claimed = await this.#claimRun(job);
      if (!(claimed instanceof LockHandle)) return claimed;
      lock = claimed;
      return { tickMs, lock, turn };
    } finally {
      if (!lock) await turn[Symbol.asyncDispose]();
    }
  }

  /** Never a planned time: the application may use the tick to recognise a run that it has done before. */
  #now({ plan }: Job): number {
    const nowMs = Math.floor(this.#locks.clock.wallMs());
    return plan?.latest(nowMs) === nowMs ? nowMs + 1 : nowMs;
  }

  async #claimTurn(job: Job): Promise<LockHandle | CronRunRecord> {
    const { jobs, namespace, stopping, defaultLeaseMs } = this.#locks;
    const { key, options } = job;
    const storeKey = manualStoreKey(namespace, key);
    // Read before the number: a run that has ended by now has an older one, so it is not that of a call at the same time.
    const records = await this.#readRecords(key);
    const current = await jobs.inspectRun(key, mayOverlap(job) ? storeKey : undefined);
    // One without an end that has no lock any more has died.
    const older = records.filter((run) => run.ended !== null || run.fencingToken !== current?.fencingToken);
    const { claimed, heldForMs } = await jobs.readTicks(key, storeKey);
    if (heldForMs > 0) return this.#readOtherRun(job, storeKey, older);
    await this.#requireLeader(job);
    // The application may have begun to drain meanwhile, and does not wait for a run that begins later.
    stopping.throwIfAborted();
    const number = (claimed?.tickMs ?? 0) + 1;
    const tick = { tickMs: number, maxEarlyMs: 0, staleAfterMs: Number.MAX_SAFE_INTEGER };
    const { leaseMs = defaultLeaseMs } = options;
    const turnLeaseMs = mayOverlap(job) ? leaseMs : Math.min(leaseMs, MAX_TURN_LEASE_MS);
    const result = await jobs.claimTick(key, { tick, leaseMs: turnLeaseMs, storeKey });
    if (result instanceof LockHandle) {
      if (!mayOverlap(job)) result.suppressedEvents = HIDDEN_OF_TURN;
      return result;
    }
    if (result.kind === 'unknown') throw unavailableError(key, result.cause);
    return this.#readOtherRun(job, storeKey, older);
  }

  /** Claims the lock that the planned runs have, too. */
  async #claimRun(job: Job): Promise<LockHandle | CronRunRecord> {
    const { jobs, stopping } = this.#locks;
    const { key, options } = job;
    for (;;) {
      const tick = await this.#findOldDeadRun(job);
      stopping.throwIfAborted();
      if (tick && !(await endWithoutRun(job, { tick }, this.#locks))) {
        await sleep(this.#locks.clock, LOOK_PAUSE_MS, stopping, { awaited: true });
        continue;
      }
      stopping.throwIfAborted();
      const result = await jobs.claimTick(key, { leaseMs: options.leaseMs });
      if (result instanceof LockHandle) return result;
      if (result.kind === 'unknown') throw unavailableError(key, result.cause);
      const run = await jobs.inspectRun(key);
      // Otherwise the run has ended meanwhile.
      if (run) return this.#recordOf(run, await this.#readRecords(key));
    }
  }

  /**
   * What claims the tick of a run that has died, if it may not be retried any more. A store counts the age of a dead run from the
   * last time at which its lock was held, so it would be retried after the manual run if it were not ended before.
   */
  async #findOldDeadRun(job: Job): Promise<TickClaim | undefined> {
    if (!retriesDeadRuns(job) || !isPlanned(job)) return undefined;
    const state = await this.#locks.jobs.readTicks(job.key);
    const { claimed, heldForMs, isPaused } = state;
    if (!claimed || heldForMs > 0 || isPaused) return undefined;
    const { tick } = buildClaimParams(job, createTick(job.plan, claimed.tickMs), this.#locks);
    if (findDeadTick(tick, state) !== undefined) return undefined;
    const takeover = { ...tick, takeoverWithinMs: Number.MAX_SAFE_INTEGER };
    return findDeadTick(takeover, state) === undefined ? undefined : takeover;
  }

  async #requireLeader(job: Job): Promise<void> {
    if (await this.#ticks.mayRun(job)) return;
    const { leader } = job.options;
    throw new LockConfigError(
      `CronRuns.runNow('${job.key}'): expected the process that leads "${leader}", as the job runs only there. This ` +
        `process does not lead it. Call runNow() in the leader: LeaderElection says which one it is.`,
      { key: job.key },
    );
  }

  /** The run of the call that was first, or another run that is in progress. `older` are runs that had ended before. */
  async #readOtherRun(job: Job, storeKey: string, older: readonly CronRunRecord[]): Promise<CronRunRecord> {
    const { jobs, clock, stopping } = this.#locks;
    const { key } = job;
    for (let looks = 1; ; looks += 1) {
      const run = mayOverlap(job) ? null : await jobs.inspectRun(key);
      const turn = await jobs.inspectRun(key, storeKey);
      const other = mayOverlap(job) ? turn : run;
      if (other) {
        const records = await this.#readRecords(key);
        if (!mayOverlap(job)) return this.#recordOf(other, records);
        // A planned run that overlaps with it may have the same fencing token.
        const manual = records.filter(({ isManual }) => isManual);
        return { ...this.#recordOf(other, manual), isManual: true };
      }
      if (!turn) return this.#readEndedRun(key, older);
      // The first call has not claimed the lock of its run yet. That takes one request, unless its process has died.
      if (looks >= LOOKS_WITHOUT_PAUSE) await sleep(clock, LOOK_PAUSE_MS, stopping, { awaited: true });
    }
  }

  /** The run of the call that was first, which has ended. */
  async #readEndedRun(key: string, older: readonly CronRunRecord[]): Promise<CronRunRecord> {
    const { clock, stopping } = this.#locks;
    const olderIds = new Set(older.map(runIdOf));
    const untilMs = clock.monotonicMs() + MAX_RECORD_WAIT_MS;
    for (;;) {
      const records = await this.#readRecords(key);
      const record = records.find((each) => each.isManual && !olderIds.has(runIdOf(each)));
      const isOver = clock.monotonicMs() >= untilMs;
      // Its start is written before its end.
      if (record && (record.ended !== null || isOver)) return record;
      if (isOver) break;
      await sleep(clock, LOOK_PAUSE_MS, stopping, { awaited: true });
      stopping.throwIfAborted();
    }
    throw new LockUnavailableError(
      `Another process was first to run the job "${key}", but the history has no such run. Try again.`,
      { key },
    );
  }

  async #readRecords(key: string): Promise<readonly CronRunRecord[]> {
    return (await readRunHistory(this.#locks.jobs, key)).map(({ record }) => record);
  }

  #recordOf(run: LockRecord, records: readonly CronRunRecord[]): CronRunRecord {
    return records.find(({ fencingToken }) => fencingToken === run.fencingToken) ?? recordOfLock(run);
  }
}

function requirePlan({ key, plan }: Job): void {
  if (plan) return;
  throw new LockConfigError(
    `CronRuns.runNow('${key}'): expected a job with a schedule, but this one runs once for each deployKey. Put its work ` +
      `into a separate method with @Locked, and call that.`,
    { key },
  );
}

/** What the lock of a run says about it, if its history has no record yet. */
export function recordOfLock({ instance, fencingToken, sinceMs }: LockRecord): CronRunRecord {
  const started = new Date(sinceMs);
  return {
    ...{ tick: started, attempt: 1, isManual: false, instance, fencingToken, started },
    ...{ ended: null, outcome: 'running', error: null },
  };
}
