import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import type { TickRefused } from '../core/backend.js';
import { LockConfigError, LockLostError, LockShutdownError } from '../core/errors.js';
import type { TickSkipReason } from '../core/events.js';
import { Faults } from '../core/faults.js';
import { withJson } from '../core/json.js';
import { Lease } from '../core/lease.js';
import type { NotGranted } from '../core/grants.js';
import type { Locks } from '../core/locks.js';
import { tickStoreKey } from '../core/key.js';
import { findTooLong } from '../core/options.js';
import { reasonOf } from '../core/shown.js';
import { sleep } from '../core/sleep.js';
import { seatToken } from '../decorators/seat.js';
import { CatchUp } from './catch-up.js';
import { ClockReporter } from './clock-reporter.js';
import type { CronRun } from './cron-run.js';
import { DeadRunReporter } from './dead-run-reporter.js';
import { GuardedJob } from './guarded-job.js';
import { type Job, type TickSource, onceForEachDeploy } from './job.js';
import { type LeadershipByName, Participation } from './participation.js';
import { type CronRunOutcome, type CronRunRecord, noteFrom } from './run-story.js';
import { type Enter, type EnterOptions, StandBy } from './stand-by.js';
import { LiveTickTracker, type Tick } from './tick-tracker.js';
import { findStaleJitter, jitterMsOf, wishFor } from './tick-wish.js';

type Body = (run: CronRun) => unknown;

interface Firing {
  readonly instance: object;
  readonly method: string;
  /** What the decorator has left on the method: an overriding one has another than that of its super class. */
  readonly guard: object;
  readonly body: Body;
  /** What the method was called with. */
  readonly args: readonly unknown[];
}

interface Registered {
  readonly job: Job;
  readonly tracker: TickSource;
}

interface RegisteredMethod extends Registered {
  readonly guard: object;
}

interface Guarded {
  readonly fire: () => Promise<unknown>;
  /** A run that is on goes on; nothing runs after it. */
  readonly letGo: () => void;
}

interface Claimed {
  readonly tick: Tick;
  readonly lease: Lease;
}

/**
 * A tick for which the job is entered without its timer. What stands around the method may call it late, or not at all, so
 * the tick is claimed by the call itself.
 */
interface Entry {
  readonly job: Job;
  readonly claim: () => Promise<Claimed | undefined>;
  isTaken: boolean;
}

interface RunnerParts {
  readonly locks: Locks;
  readonly elections: LeadershipByName;
  /** Whether each call of a job runs it. */
  readonly isTest?: boolean;
}

/** Where the runner of the module with this name sits. */
export const jobRunnerSeat = (name?: string) => seatToken('The runner of @SingletonCron jobs', name);

/** Runs guarded jobs: finds the tick a timer fired for, claims it in the store, and runs the body if it is ours. */
export class JobRunner {
  readonly #locks: Locks;
  readonly #elections: LeadershipByName;
  readonly #ofInstances = new Map<object, Map<string, RegisteredMethod>>();
  readonly #jobs = new Map<string, Job>();
  readonly #guarded = new Map<string, GuardedJob>();
  /** What it holds must not lead to the job, not even by the variables of a function. */
  readonly #collected = new FinalizationRegistry<GuardedJob>((guarded) => this.#letGo(guarded));
  readonly #entries = new AsyncLocalStorage<Entry>();
  /** The runs that are on. A method that calls itself passes its own on. */
  readonly #runs = new WeakMap<object, Job>();
  /** Runs begin in the asynchronous context of none of those who have made a job or started its timer. */
  readonly #context = new AsyncResource('SingletonCron');
  readonly #standBy: StandBy;
  readonly #catchUp: CatchUp;
  readonly #participation: Participation;
  readonly #deadRuns: DeadRunReporter;
  readonly #clocks: ClockReporter;
  readonly #isTest: boolean;
  /** Ticks that a test has named. */
  readonly #namedTicks = new Set<string>();
  #calls = 0;
  #isStarted = false;

  constructor({ locks, elections, isTest = false }: RunnerParts) {
    const context = this.#context;
    const enter: Enter = (job, tick, options) => this.#enter(job, tick, options);
    const mayRun = (job: Job) => this.#isForUs(job);
    this.#locks = locks;
    this.#elections = elections;
    this.#deadRuns = new DeadRunReporter(locks);
    this.#clocks = new ClockReporter(locks);
    this.#isTest = isTest;
    this.#standBy = new StandBy({ locks, context, enter, mayRun });
    this.#catchUp = new CatchUp({ locks, context, enter, mayRun, standBy: this.#standBy });
    this.#participation = new Participation({ elections, catchUp: this.#catchUp, stopping: locks.stopping });
  }

  /** Makes the method of this instance a job. Its ticks count from now. */
  register({ instance, method, guard }: Pick<Firing, 'instance' | 'method' | 'guard'>, job: Job): void {
    const ofInstance = this.#ofInstances.get(instance) ?? new Map<string, RegisteredMethod>();
    this.#ofInstances.set(instance, ofInstance);
    ofInstance.set(method, { ...this.#registered(job), guard });
    this.#jobs.set(job.key, job);
    this.#participation.watch(job);
  }

  isRegistered(instance: object, method: string): boolean {
    return this.#ofInstances.get(instance)?.has(method) ?? false;
  }

  /**
   * Makes a function a job, in the place of an earlier one with its key, until it is let go or nobody has `fire` any more.
   * `fire` rejects as {@link fire} does.
   */
  guard(job: Job, body: Body): Guarded {
    const { key } = job;
    const registered = this.#registered(job);
    const guarded = new GuardedJob(job, { isKept: this.#isTest });
    this.#guarded.get(key)?.end();
    this.#guarded.set(key, guarded);
    this.#collected.register(job, guarded);
    guarded.begin(this.#participation);
    const fire = async () => {
      const entry = this.#entryOf(job);
      if (entry) return this.#fireEntry(entry, body);
      if (!job.isFiring()) return undefined;
      return this.#context.runInAsyncScope(() => this.#fire(registered, body));
    };
    return { fire, letGo: () => this.#letGo(guarded) };
  }

  #letGo(guarded: GuardedJob): void {
    if (this.#guarded.get(guarded.key) === guarded) this.#guarded.delete(guarded.key);
    guarded.end();
  }

  isGuarded(key: string): boolean {
    return this.#guarded.get(key)?.job !== undefined;
  }

  get keys(): readonly string[] {
    return [...this.#jobs.keys(), ...this.#guarded.keys()];
  }

  jobOf(key: string): Job | undefined {
    return this.#jobs.get(key) ?? this.#guarded.get(key)?.job;
  }

  /** Looks for what happened while this process was not there. Before that jobs run, but nothing is caught up with. */
  start(): void {
    this.#isStarted = true;
    this.#participation.start([...this.#guarded.values()].flatMap(({ job }) => job ?? []));
  }

  /** Called when a timer fires, in every replica. Rejects with what the body throws, or if the run was lost meanwhile. */
  async fire({ instance, method, guard, body, args: [given] }: Firing): Promise<unknown> {
    const found = this.#ofInstances.get(instance)?.get(method);
    if (!found) throw this.#isStarted ? notAJob(instance, method) : tooEarly(instance, method);
    const { job } = found;
    const entry = this.#entryOf(job);
    if (entry) return this.#fireEntry(entry, body);
    const isInRun = this.#locks.isRunning(job.key);
    const isSuper = guard !== found.guard;
    if (isSuper ? isInRun : this.#isRunOf(job, given)) return body(given as CronRun);
    // A timer that a run has set, as by `setTime()`, fires in the context of that run.
    if (isInRun) return this.#context.runInAsyncScope(() => this.#fire(found, body));
    return this.#fire(found, body);
  }

  #isRunOf(job: Job, given: unknown): boolean {
    return typeof given === 'object' && given !== null && this.#runs.get(given) === job;
  }

  /** Runs a job through all that stands around its method, whatever the calendar says: for tests. */
  async runNow(key: string, tickMs?: number): Promise<unknown> {
    const job = this.jobOf(key);
    if (!job) return undefined;
    const named = `${key}@${tickMs}`;
    if (tickMs !== undefined && this.#namedTicks.has(named)) {
      this.#skipped(job, tickMs, 'taken');
      return undefined;
    }
    const claim = async () => {
      const claimed = await this.#claimAnyway(job, tickMs);
      if (claimed && tickMs !== undefined) this.#namedTicks.add(named);
      return claimed;
    };
    return await this.#entries.run({ job, claim, isTaken: false }, () => job.enter());
  }

  /** Claims no tick, only that no other run is on. */
  async #claimAnyway(
    job: Job,
    tickMs = newestTickMs(job, this.#locks.clock.wallMs()),
  ): Promise<Claimed | undefined> {
    const { namespace } = this.#locks;
    const isOnItsOwn = job.options.overlap === 'allow';
    const storeKey = isOnItsOwn ? tickStoreKey(namespace, job.key, (this.#calls += 1)) : undefined;
    const lease = await this.#locks.claimTick(job.key, { leaseMs: job.options.leaseMs, storeKey });
    if (lease instanceof Lease) return { tick: { tickMs, periodMs: Infinity }, lease };
    this.#skipped(job, tickMs, lease.kind === 'unknown' ? 'unavailable' : 'overlap');
    return undefined;
  }

  #skipped(job: Job, tickMs: number, reason: TickSkipReason): void {
    this.#locks.events.emit('tick-skipped', { job: job.key, tick: new Date(tickMs), reason });
  }

  #registered(job: Job): Registered {
    const { plan, options } = job;
    const faults = new Faults();
    findTooLong(faults, 'leaseMs', options.leaseMs, this.#locks.maxLeaseMs);
    if (plan) findStaleJitter(faults, { ...job, plan }, this.#locks);
    faults.throwIfAny(`Wrong options of the job '${job.key}'`);
    const tracker = plan && new LiveTickTracker(job, plan, this.#locks.clock.wallMs());
    return { job, tracker: tracker ?? onceForEachDeploy };
  }

  /** What the job was entered for, unless that was done already. */
  #entryOf(job: Job): Entry | undefined {
    const entry = this.#entries.getStore();
    return entry?.job === job && !entry.isTaken ? entry : undefined;
  }

  async #fireEntry(entry: Entry, body: Body): Promise<unknown> {
    entry.isTaken = true;
    const claimed = await entry.claim();
    return claimed && this.#run(entry.job, claimed, body);
  }

  async #fire({ job, tracker }: Registered, body: Body): Promise<unknown> {
    if (this.#isTest) {
      const claimed = await this.#claimAnyway(job);
      return claimed && this.#run(job, claimed, body);
    }
    const tick = tracker.fired(this.#locks.clock.wallMs());
    if (!tick) return undefined;
    const lease = await this.#claim(job, tick);
    if (lease instanceof Lease) return this.#run(job, { tick, lease }, body);
    if (lease !== undefined) this.#skipped(job, tick.tickMs, lease);
    return undefined;
  }

  /** `undefined` if the job was deleted, stopped or let go meanwhile. */
  async #claim(job: Job, tick: Tick): Promise<Lease | TickSkipReason | undefined> {
    const { clock, stopping } = this.#locks;
    // A call by hand also runs a job that the scheduler does not fire.
    const wasFiring = job.isFiring();
    await sleep(clock, jitterMsOf(job, tick), stopping);
    while (!stopping.aborted) {
      if (!(await this.#isForUs(job))) return 'not-leader';
      if (wasFiring && !job.isFiring()) return undefined;
      const wish = wishFor(job, tick, this.#locks);
      const answer = await this.#locks.claimTick(job.key, wish);
      if (answer instanceof Lease) return answer;
      if (answer.kind !== 'refused' || answer.reason !== 'early') {
        if (wish.storeKey !== undefined && answer.kind !== 'unknown')
          this.#deadRuns.runsElsewhere(job, wish.storeKey);
        else if (isHeldUp(answer)) this.#deadRuns.skipped(job);
        else if (isClaimed(answer)) this.#clocks.claimed(job, tick, answer.aheadMs);
        return this.#skip(job, tick, answer);
      }
      this.#clocks.early(job, answer.aheadMs);
      // Our clock is ahead of the store's. Whoever claims the tick first when its time has come runs it.
      await sleep(clock, Math.max(answer.aheadMs, 1), stopping);
    }
    return 'shutdown';
  }

  /** Sees to what may become of the tick, or of an earlier one, without a timer. */
  #skip(job: Job, tick: Tick, answer: NotGranted): TickSkipReason {
    if (answer.kind === 'unknown') {
      // It may have been granted all the same, and is withdrawn: then a dead run is found, by one look for all such ticks.
      this.#catchUp.look(job);
      return 'unavailable';
    }
    if (answer.kind === 'taken') return 'overlap';
    if (answer.unfinishedMs !== undefined) {
      void this.#standBy.watch(job, { ...tick, tickMs: answer.unfinishedMs }, 0);
      return 'overlap';
    }
    if (answer.retryInMs !== undefined) {
      void this.#standBy.watch(job, tick, answer.retryInMs);
    }
    return answer.reason === 'stale' ? 'stale' : 'taken';
  }

  async #isForUs({ options: { leader } }: Job): Promise<boolean> {
    return leader === undefined || (await this.#elections.confirmedTerm(leader)) !== undefined;
  }

  /**
   * Enters the job for a tick whose timer fired long ago or never. Returns what the store has answered, or `undefined` if the
   * method has not been called until then: a later call claims the tick as well.
   */
  async #enter(
    job: Job,
    tick: Tick,
    { isMissed = false }: EnterOptions = {},
  ): Promise<Lease | NotGranted | undefined> {
    let answered: Lease | NotGranted | undefined;
    let isLate = false;
    const claim = async () => {
      const found = await this.#claimEntered(job, tick, isMissed);
      if (found && typeof found === 'object') answered = found;
      if (answered instanceof Lease) return { tick, lease: answered };
      const reason = typeof found === 'object' ? this.#skip(job, tick, found as NotGranted) : found;
      if (reason && (isLate || reason === 'stale')) this.#skipped(job, tick.tickMs, reason);
      return undefined;
    };
    try {
      await this.#entries.run({ job, claim, isTaken: false }, async () => {
        await job.enter();
      });
    } catch (error) {
      job.onError(error);
    }
    isLate = true;
    return answered;
  }

  async #claimEntered(
    job: Job,
    tick: Tick,
    isMissed: boolean,
  ): Promise<Lease | NotGranted | TickSkipReason | undefined> {
    if (this.#locks.stopping.aborted) return 'shutdown';
    if (!(await this.#isForUs(job))) return 'not-leader';
    if (!job.isFiring()) return undefined;
    return this.#locks.claimTick(job.key, wishFor(job, tick, this.#locks, { isMissed }));
  }

  async #run(job: Job, { tick, lease }: Claimed, body: Body): Promise<unknown> {
    const { fencingToken, signal } = lease;
    const { attempt } = lease.grant;
    const run: CronRun = withJson({ tick: new Date(tick.tickMs), attempt, fencingToken, signal });
    this.#locks.events.emit('tick-claimed', { job: job.key, tick: run.tick, fencingToken, attempt });
    const started = this.#noteBegin(job, run);
    this.#runs.set(run, job);
    return this.#locks.workUnder(lease, async () => {
      try {
        const value = await body(run);
        lease.grant.hasEnded = true;
        this.#noteEnd(job, started, lease.isLost ? 'lost' : 'completed');
        return value;
      } catch (error) {
        const isInterrupted = signal.aborted && signal.reason instanceof LockShutdownError;
        lease.grant.hasEnded = !isInterrupted;
        this.#noteEnd(job, started, isInterrupted ? 'interrupted' : lossOr('failed', lease, error), error);
        throw error;
      } finally {
        this.#runs.delete(run);
      }
    });
  }

  #noteBegin(job: Job, { tick, attempt, fencingToken }: CronRun): CronRunRecord {
    const { clock, instance } = this.#locks;
    const began: CronRunRecord = {
      ...{ tick, attempt, instance, fencingToken, started: new Date(clock.wallMs()) },
      ...{ ended: null, outcome: 'running', error: null },
    };
    void this.#locks.note(job.key, noteFrom(began));
    return began;
  }

  #noteEnd(job: Job, began: CronRunRecord, outcome: CronRunOutcome, cause?: unknown): void {
    const error = cause === undefined ? null : reasonOf(cause);
    const ended = new Date(this.#locks.clock.wallMs());
    void this.#locks.note(job.key, noteFrom({ ...began, ended, outcome, error }));
  }
}

const lossOr = (outcome: CronRunOutcome, lease: Lease, error: unknown): CronRunOutcome =>
  lease.isLost || isLoss(error) ? 'lost' : outcome;

/** A proxy may throw when it is looked at, which would hide what the job threw. */
function isLoss(error: unknown): boolean {
  try {
    return error instanceof LockLostError;
  } catch {
    return false;
  }
}

/** Whether a run that is on keeps the tick from running. */
const isHeldUp = (answer: NotGranted) =>
  answer.kind === 'taken' || (answer.kind === 'refused' && answer.retryInMs !== undefined);

const isClaimed = (answer: NotGranted): answer is TickRefused =>
  answer.kind === 'refused' && answer.reason === 'claimed';

const newestTickMs = ({ plan }: Job, nowMs: number) => plan?.latest(nowMs) ?? nowMs;

const tooEarly = (instance: object, method: string) =>
  new LockConfigError(
    `${instance.constructor.name}.${method} was called before its application has booted: expected a call when all jobs are ` +
      `registered. Call it in onApplicationBootstrap() instead of onModuleInit(). In a test, \`await app.init()\` is missing: ` +
      `compile() alone is not enough.`,
  );

const notAJob = (instance: object, method: string) =>
  new LockConfigError(
    `${instance.constructor.name}.${method} is not a job of this application: expected an instance that Nest made and ` +
      `that is neither request-scoped nor transient.`,
  );
