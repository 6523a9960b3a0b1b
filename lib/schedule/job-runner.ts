import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { LockConfigError } from '../core/errors.js';
import type { TickSkipReason } from '../core/events.js';
import { Lease } from '../core/leases/lease.js';
import type { Locks } from '../core/locks.js';
import { OptionErrors } from '../core/option-errors.js';
import { collectMaxLeaseErrors } from '../core/options.js';
import type { NotGranted } from '../core/leases/acquirer.js';
import { notBootedError } from '../decorators/decorated-method.js';
import { getPropertyToken } from '../decorators/injected-property.js';
import { runJob } from './job-run.js';
import { type CronRun, type Job, type TickSource, onceForEachDeploy } from './job.js';
import { ReschedulableTickCalculator, type Tick } from './plan/tick-calculator.js';
import { DeadRunWatcher, type InvokeJob, type InvokeOptions } from './recovery/dead-run-watcher.js';
import { MissedTickRunner } from './recovery/missed-tick-runner.js';
import { GuardedJob } from './registry/guarded-job.js';
import { JobActivator, type JobElections } from './registry/job-activator.js';
import { collectJitterErrors } from './tick-claim.js';
import { TickClaimer } from './tick-claimer.js';

type JobBody = (run: CronRun) => unknown;

interface MethodCall {
  readonly instance: object;
  readonly method: string;
  /** The metadata object of the decorator. A method that overrides a guarded one has a different object. */
  readonly guard: object;
  readonly body: JobBody;
  /** The arguments of the call. */
  readonly args: readonly unknown[];
}

interface RegisteredJob {
  readonly job: Job;
  readonly tickSource: TickSource;
}

interface RegisteredMethod extends RegisteredJob {
  readonly guard: object;
}

interface GuardHandle {
  readonly fire: () => Promise<unknown>;
  /** Unregisters the job. A run in progress continues; no further run begins. */
  readonly unregister: () => void;
}

interface ClaimedRun {
  readonly tick: Tick;
  readonly lease: Lease;
}

/**
 * A tick for which this class invokes the job, without its timer. Other decorators of the method may call it late or not at
 * all, so the tick is claimed only when the method itself is called.
 */
interface PendingInvocation {
  readonly job: Job;
  readonly claim: () => Promise<ClaimedRun | undefined>;
  isUsed: boolean;
}

interface RunnerParts {
  readonly locks: Locks;
  readonly elections: JobElections;
  /** Whether each call of a job runs it, as under `LockTestingModule`. */
  readonly isTest?: boolean;
}

/** The property token of the job runner of the module with this name. */
export const getJobRunnerPropertyToken = (name?: string) =>
  getPropertyToken('The runner of @SingletonCron jobs', name);

/** Runs guarded jobs: computes the tick that a timer fired for, claims it in the store, and runs the body if it was granted. */
export class JobRunner {
  readonly #locks: Locks;
  readonly #methodsByInstance = new Map<object, Map<string, RegisteredMethod>>();
  readonly #decoratedJobs = new Map<string, Job>();
  readonly #guardedJobs = new Map<string, GuardedJob>();
  /** The held value must not reference the job, not even through a closure: the job would never be collected. */
  readonly #finalizationRegistry = new FinalizationRegistry<GuardedJob>((guarded) =>
    this.#unregister(guarded),
  );
  readonly #pendingInvocations = new AsyncLocalStorage<PendingInvocation>();
  /** The runs in progress by their `CronRun`. A method that passes its run on to itself stays in that run. */
  readonly #jobsByRun = new WeakMap<object, Job>();
  /** Runs begin in this asynchronous context, never in that of the code that created a job or started its timer. */
  readonly #context = new AsyncResource('SingletonCron');
  readonly #deadRunWatcher: DeadRunWatcher;
  readonly #missedTickRunner: MissedTickRunner;
  readonly #jobActivator: JobActivator;
  readonly #claimer: TickClaimer;
  readonly #isTest: boolean;
  /** Ticks that a test has run with `fire(key, { tick })`. */
  readonly #namedTicks = new Set<string>();
  #isStarted = false;

  constructor({ locks, elections, isTest = false }: RunnerParts) {
    const context = this.#context;
    const invoke: InvokeJob = (job, tick, options) => this.#invoke(job, tick, options);
    const recovery = () => ({
      deadRunWatcher: this.#deadRunWatcher,
      missedTickRunner: this.#missedTickRunner,
    });
    const claimer = new TickClaimer({ locks, elections, recovery });
    const mayRun = (job: Job) => claimer.mayRun(job);
    this.#claimer = claimer;
    this.#locks = locks;
    this.#isTest = isTest;
    this.#deadRunWatcher = new DeadRunWatcher({ locks, context, invoke, mayRun });
    this.#missedTickRunner = new MissedTickRunner({
      locks,
      context,
      invoke,
      mayRun,
      deadRunWatcher: this.#deadRunWatcher,
    });
    this.#jobActivator = new JobActivator({
      elections,
      missedTickRunner: this.#missedTickRunner,
      stopping: locks.stopping,
    });
  }

  /** Makes the method of this instance a job. Its ticks count from this call on. */
  register({ instance, method, guard }: Pick<MethodCall, 'instance' | 'method' | 'guard'>, job: Job): void {
    const methods = this.#methodsByInstance.get(instance) ?? new Map<string, RegisteredMethod>();
    this.#methodsByInstance.set(instance, methods);
    methods.set(method, { ...this.#createRegisteredJob(job), guard });
    this.#decoratedJobs.set(job.key, job);
    this.#jobActivator.watch(job);
  }

  isRegistered(instance: object, method: string): boolean {
    return this.#methodsByInstance.get(instance)?.has(method) ?? false;
  }

  /**
   * Makes a function a job and replaces an earlier job with this key. The job ends when it is unregistered, or when `fire` is
   * garbage-collected. `fire` rejects as {@link fire} does.
   */
  guard(job: Job, body: JobBody): GuardHandle {
    const { key } = job;
    const registered = this.#createRegisteredJob(job);
    const guarded = new GuardedJob(job, { keepsJob: this.#isTest });
    this.#guardedJobs.get(key)?.deactivate();
    this.#guardedJobs.set(key, guarded);
    this.#finalizationRegistry.register(job, guarded);
    guarded.activate((created, reference) => this.#jobActivator.activate(created, reference));
    const fire = async () => {
      const invocation = this.#findPendingInvocation(job);
      if (invocation) return this.#runInvocation(invocation, body);
      if (!job.isFiring()) return undefined;
      return this.#context.runInAsyncScope(() => this.#fire(registered, body));
    };
    return { fire, unregister: () => this.#unregister(guarded) };
  }

  #unregister(guarded: GuardedJob): void {
    if (this.#guardedJobs.get(guarded.key) === guarded) this.#guardedJobs.delete(guarded.key);
    guarded.deactivate();
  }

  isGuarded(key: string): boolean {
    return this.#guardedJobs.get(key)?.job !== undefined;
  }

  get keys(): readonly string[] {
    return [...this.#decoratedJobs.keys(), ...this.#guardedJobs.keys()];
  }

  findJob(key: string): Job | undefined {
    return this.#decoratedJobs.get(key) ?? this.#guardedJobs.get(key)?.job;
  }

  /** Starts the recovery of missed ticks and dead runs. Before this call, jobs run at their ticks only. */
  start(): void {
    this.#isStarted = true;
    this.#jobActivator.start([...this.#guardedJobs.values()].flatMap(({ job }) => job ?? []));
  }

  /**
   * Runs when a timer fires, in every replica. Rejects with what the body throws, or with `LockLostError` if the run was lost.
   *
   * @throws LockConfigError if the application has not booted or the instance is no job of it
   */
  async fire({ instance, method, guard, body, args: [firstArgument] }: MethodCall): Promise<unknown> {
    const registered = this.#methodsByInstance.get(instance)?.get(method);
    if (!registered) {
      const location = `${instance.constructor.name}.${method}`;
      throw this.#isStarted ? unknownJobError(location) : notBootedError(location, 'jobs');
    }
    const { job } = registered;
    const invocation = this.#findPendingInvocation(job);
    if (invocation) return this.#runInvocation(invocation, body);
    const isInRun = this.#locks.isRunning(job.key);
    const isSuper = guard !== registered.guard;
    if (isSuper ? isInRun : this.#isRunOf(job, firstArgument)) return body(firstArgument as CronRun);
    // A timer that a run has set, as by `setTime()`, fires in the context of that run.
    if (isInRun) return this.#context.runInAsyncScope(() => this.#fire(registered, body));
    return this.#fire(registered, body);
  }

  #isRunOf(job: Job, argument: unknown): boolean {
    return typeof argument === 'object' && argument !== null && this.#jobsByRun.get(argument) === job;
  }

  /** Runs a job through all decorators of its method, whatever its schedule. For tests. */
  async runNow(key: string, tickMs?: number): Promise<unknown> {
    const job = this.findJob(key);
    if (!job) return undefined;
    const tickName = `${key}@${tickMs}`;
    if (tickMs !== undefined && this.#namedTicks.has(tickName)) {
      this.#emitSkipped(job, tickMs, 'taken');
      return undefined;
    }
    const claim = async () => {
      const claimed = await this.#claimWithoutTick(job, tickMs);
      if (claimed && tickMs !== undefined) this.#namedTicks.add(tickName);
      return claimed;
    };
    return await this.#pendingInvocations.run({ job, claim, isUsed: false }, () => job.invoke());
  }

  /** Claims a run without a tick: it is refused only while another run is in progress. */
  async #claimWithoutTick(
    job: Job,
    tickMs = newestTickMs(job, this.#locks.clock.wallMs()),
  ): Promise<ClaimedRun | undefined> {
    const lease = await this.#claimer.claimWithoutTick(job);
    if (lease instanceof Lease) return { tick: { tickMs, periodMs: Infinity }, lease };
    this.#emitSkipped(job, tickMs, lease);
    return undefined;
  }

  #emitSkipped(job: Job, tickMs: number, reason: TickSkipReason): void {
    this.#locks.events.emit('tick-skipped', { job: job.key, tick: new Date(tickMs), reason });
  }

  #createRegisteredJob(job: Job): RegisteredJob {
    const { plan, options } = job;
    const errors = new OptionErrors();
    collectMaxLeaseErrors(errors, 'leaseMs', options.leaseMs, this.#locks.maxLeaseMs);
    if (plan) collectJitterErrors(errors, { ...job, plan }, this.#locks);
    errors.throwIfAny(`Wrong options of the job '${job.key}'`);
    const tickSource = plan && new ReschedulableTickCalculator(job, plan, this.#locks.clock.wallMs());
    return { job, tickSource: tickSource ?? onceForEachDeploy };
  }

  /** The tick for which this class invoked the job, unless an earlier call has used it. */
  #findPendingInvocation(job: Job): PendingInvocation | undefined {
    const invocation = this.#pendingInvocations.getStore();
    return invocation?.job === job && !invocation.isUsed ? invocation : undefined;
  }

  async #runInvocation(invocation: PendingInvocation, body: JobBody): Promise<unknown> {
    invocation.isUsed = true;
    const claimed = await invocation.claim();
    return claimed && this.#run(invocation.job, claimed, body);
  }

  async #fire({ job, tickSource }: RegisteredJob, body: JobBody): Promise<unknown> {
    if (this.#isTest) {
      const claimed = await this.#claimWithoutTick(job);
      return claimed && this.#run(job, claimed, body);
    }
    const tick = tickSource.calculateTick(this.#locks.clock.wallMs());
    if (!tick) return undefined;
    const lease = await this.#claimer.claimWhenDue(job, tick);
    if (lease instanceof Lease) return this.#run(job, { tick, lease }, body);
    if (lease !== undefined) this.#emitSkipped(job, tick.tickMs, lease);
    return undefined;
  }

  /**
   * Invokes the job for a tick whose timer fired long ago or never. Resolves with the result of the claim, or `undefined` if
   * other decorators have not called the method by then. A later call still claims the tick.
   */
  async #invoke(
    job: Job,
    tick: Tick,
    { isMissed = false }: InvokeOptions = {},
  ): Promise<Lease | NotGranted | undefined> {
    let claimResult: Lease | NotGranted | undefined;
    let isLate = false;
    const claim = async () => {
      const outcome = await this.#claimer.claimNow(job, tick, isMissed);
      if (outcome && typeof outcome === 'object') claimResult = outcome;
      if (claimResult instanceof Lease) return { tick, lease: claimResult };
      const reason =
        typeof outcome === 'object' ? this.#claimer.handleRefusal(job, tick, outcome as NotGranted) : outcome;
      if (reason && (isLate || reason === 'stale')) this.#emitSkipped(job, tick.tickMs, reason);
      return undefined;
    };
    try {
      await this.#pendingInvocations.run({ job, claim, isUsed: false }, async () => {
        await job.invoke();
      });
    } catch (error) {
      job.onError(error);
    }
    isLate = true;
    return claimResult;
  }

  async #run(job: Job, { tick, lease }: ClaimedRun, body: JobBody): Promise<unknown> {
    return runJob({ locks: this.#locks, job, tickMs: tick.tickMs, lease }, async (run) => {
      this.#jobsByRun.set(run, job);
      try {
        return await body(run);
      } finally {
        this.#jobsByRun.delete(run);
      }
    });
  }
}

const newestTickMs = ({ plan }: Job, nowMs: number) => plan?.latest(nowMs) ?? nowMs;

const unknownJobError = (location: string) =>
  new LockConfigError(
    `${location} is not a job of this application: expected an instance that Nest created and that is neither request-scoped ` +
      `nor transient.`,
  );
