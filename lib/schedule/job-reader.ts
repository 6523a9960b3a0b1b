import { withJson } from '../core/json.js';
import type { Locks } from '../core/locks.js';
import type { TickState } from '../core/tick.js';
import { maxFiringDelayMsOf, maxJitterMsOf } from './claim-params.js';
import { mayOverlap, ownStoreKey, possibleStoreKeys } from './tick-keys.js';
import { type Job, type PlannedJob, isPlanned } from './job.js';
import { recordOfLock } from './manual-claimer.js';
import type { PlanAges } from './plan/plan-ages.js';
import { createTick } from './plan/tick-calculator.js';
import { originOf } from './recovery/passed-over-ticks.js';
import { type CronRunRecord, type StoredRun, readRunHistory, runIdOf } from './run-record.js';

/** The state of a job in the whole cluster. In JSON, fencing tokens are strings. */
export interface JobInfo {
  readonly key: string;
  /** The cron expression or the date, or a text such as `every 10000 ms`. */
  readonly schedule: string;
  /** The time zone of the expression: that of the process if none is given. `null` for an interval and a `@Timeout`. */
  readonly timeZone: string | null;
  /** The next planned tick; `null` if there is none. */
  readonly nextTick: Date | null;
  /** The newest run of all replicas. Best effort, as all of the history; `null` if none is known. */
  readonly lastRun: CronRunRecord | null;
  /** The runs that are in progress, with the instances that run them. Several only with `overlap: 'allow'`. */
  readonly running: readonly CronRunRecord[];
  /** Whether the job is paused: then its ticks are skipped. */
  readonly isPaused: boolean;
  /**
   * The newest planned tick, if its time was at least 5 s ago and no replica has run it, for whatever reason. A tick of an
   * interval counts as missed after 1.5 intervals, because an interval fires at any phase of its period. `null` while the job is paused, if it is new to the store, and if the scheduler of this process does not fire it.
   */
  readonly missedTick: Date | null;
  /** Whether the scheduler of this process fires the job. */
  readonly isFiring: boolean;
}

/** A job with its last runs. */
export interface JobReport {
  readonly info: JobInfo;
  readonly runs: readonly CronRunRecord[];
}

/** How long after its time a tick counts as missed. The clocks of all replicas are usually less apart. */
const MISSED_AFTER_MS = 5_000;

/** Reads from the store what it has about jobs. All methods reject with `LockUnavailableError` if it does not answer. */
export class JobReader {
  readonly #locks: Locks;
  readonly #planAges: PlanAges;

  constructor(locks: Locks, planAges: PlanAges) {
    this.#locks = locks;
    this.#planAges = planAges;
  }

  async read(job: Job): Promise<JobReport> {
    const { key, plan, schedule } = job;
    const [runs, state] = await Promise.all([this.readRuns(key), this.#locks.jobs.readTicks(key)]);
    const [running, missedMs] = await Promise.all([
      this.#readRunning(job, state, runs),
      this.#findMissedTick(job, state, runs),
    ]);
    const info: JobInfo = {
      ...{ key, schedule: schedule.text, timeZone: schedule.timeZone },
      nextTick: dateOf(plan?.next(this.#locks.clock.wallMs())),
      lastRun: runs[0] ?? null,
      running,
      isPaused: state.isPaused ?? false,
      missedTick: dateOf(missedMs),
      isFiring: job.isFiring(),
    };
    return { info: withJson(info), runs };
  }

  /** The last runs of all replicas, the newest first. */
  async readRuns(key: string): Promise<readonly CronRunRecord[]> {
    const { jobs } = this.#locks;
    const history = await readRunHistory(jobs, key);
    const runs = await Promise.all(history.map((run) => this.#resolveOutcome(key, run)));
    if (!runs.some(isDead)) return runs;
    // A run may have ended between the readings of the history and of its lock.
    const ended = (await readRunHistory(jobs, key)).filter(({ record }) => record.ended !== null);
    const endOf = (run: CronRunRecord) =>
      ended.find(({ record }) => runIdOf(record) === runIdOf(run))?.record;
    return runs.map((run) => withJson((isDead(run) && endOf(run)) || run));
  }

  /** If the end of a run was not recorded, its lock in the store shows whether the run is still in progress. */
  async #resolveOutcome(key: string, run: StoredRun): Promise<CronRunRecord> {
    const { record } = run;
    if (record.ended !== null) return withJson(record);
    const storeKeys = possibleStoreKeys(key, run, this.#locks);
    const currentRuns = await Promise.all(
      storeKeys.map((storeKey) => this.#locks.jobs.inspectRun(key, storeKey)),
    );
    const isRunning = currentRuns.some((current) => current?.fencingToken === record.fencingToken);
    return withJson(isRunning ? record : { ...record, outcome: 'dead' });
  }

  /** A run whose start is not in the history is known by its lock. */
  async #readRunning(
    { key }: Job,
    { heldForMs }: TickState,
    runs: readonly CronRunRecord[],
  ): Promise<readonly CronRunRecord[]> {
    const running = runs.filter(({ outcome }) => outcome === 'running');
    if (heldForMs <= 0 || running.length > 0) return running;
    const lock = await this.#locks.jobs.inspectRun(key);
    // It may have ended meanwhile, or its end is in the history, and its release on the way.
    const isNew = lock && !runs.some(({ fencingToken }) => fencingToken === lock.fencingToken);
    return isNew ? [withJson(recordOfLock(lock))] : running;
  }

  async #findMissedTick(
    job: Job,
    state: TickState,
    runs: readonly CronRunRecord[],
  ): Promise<number | undefined> {
    if (!isPlanned(job) || state.isPaused || !job.isFiring()) return undefined;
    const tickMs = findDueTick(job, state.nowMs);
    const { claimed } = state;
    if (tickMs === undefined || (claimed && tickMs <= claimed.tickMs)) return undefined;
    if (!mayOverlap(job)) {
      if (!claimed) return undefined;
      const origin = await originOf(job, claimed.tickMs, this.#locks);
      const isOfThisPlan =
        origin !== 'another-plan' || tickMs > this.#planAges.sinceMs(job.plan, state.nowMs);
      return isOfThisPlan ? tickMs : undefined;
    }
    const isNewJob = !runs.some((run) => !run.isManual && run.tick.getTime() < tickMs);
    if (isNewJob || runs.some(({ tick }) => tick.getTime() === tickMs)) return undefined;
    const own = await this.#locks.jobs.readTicks(job.key, ownStoreKey(job.key, tickMs, this.#locks));
    return own.claimed ? undefined : tickMs;
  }
}

/** The newest tick that some replica should have claimed by now. */
function findDueTick(job: PlannedJob, nowMs: number): number | undefined {
  const { plan } = job;
  const latestMs = plan.latest(nowMs - MISSED_AFTER_MS);
  if (latestMs === undefined) return undefined;
  const tick = createTick(plan, latestMs);
  const delayMs = maxJitterMsOf(job, tick) + maxFiringDelayMsOf(job, tick);
  return delayMs === 0 ? latestMs : plan.latest(nowMs - MISSED_AFTER_MS - delayMs);
}

const isDead = ({ outcome }: CronRunRecord) => outcome === 'dead';

const dateOf = (ms: number | undefined) => (ms === undefined ? null : new Date(ms));
