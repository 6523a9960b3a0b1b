import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { LockConfigError } from '../core/errors.js';
import type { TickSkipReason } from '../core/events.js';
import type { NotGranted } from '../core/leases/acquirer.js';
import { Lease } from '../core/leases/lease.js';
import type { Locks } from '../core/locks.js';
import { notBootedError } from '../decorators/decorated-method.js';
import { getPropertyToken } from '../decorators/injected-property.js';
import type { Elections } from '../election/elections.js';
import { type JobRun, runJob } from './job-run.js';
import type { CronRun, Job } from './job.js';
import { type Tick, TickCalculator } from './plan/tick-calculator.js';
import type { RecoveryParts } from './recovery/dead-run-watcher.js';
import { Recovery } from './recovery/recovery.js';
import { JobRegistry } from './registry/job-registry.js';
import { checkJobOptions } from './claim-params.js';
import { TickClaimer } from './tick-claimer.js';

type JobBody = (run: CronRun) => unknown;

interface MethodCall {
  readonly instance: object;
  readonly method: string;
  /** The metadata object of the decorator. A method that overrides a guarded one has a different object. */
  readonly guard: object;
  readonly body: JobBody;
  /** The first argument of the call. */
  readonly argument: unknown;
}

type ClaimedRun = Pick<JobRun, 'tickMs' | 'lease'>;

interface RegisteredJob {
  readonly job: Job;
  /** Claims a tick for a call of the job; `undefined` if the call is skipped. */
  readonly claim: () => Promise<ClaimedRun | undefined>;
}

type RegisteredMethod = RegisteredJob & Pick<MethodCall, 'guard'>;

/**
 * A tick for which this class invokes the job, without its timer. Other decorators of the method may call it late or not at
 * all, so the tick is claimed only when the method itself is called.
 */
interface PendingInvocation extends RegisteredJob {
  isUsed: boolean;
}

interface RunnerParts {
  readonly locks: Locks;
  readonly elections: Elections;
  /** Whether each call of a job runs it, as under `LockTestingModule`. */
  readonly isTest?: boolean;
}

/** The property token of the job runner of the module with this name. */
export const getJobRunnerPropertyToken = (name?: string) =>
  getPropertyToken('The runner of @SingletonCron jobs', name);

/** Runs guarded jobs: computes the tick that a timer fired for, claims it in the store, and runs the body if it was granted. */
export class JobRunner {
  readonly jobs: JobRegistry;
  readonly #methodsByInstance = new Map<object, Map<string, RegisteredMethod>>();
  readonly #pendingInvocations = new AsyncLocalStorage<PendingInvocation>();
  /** The runs in progress by their `CronRun`. A method that passes its run on to itself stays in that run. */
  readonly #jobsByRun = new WeakMap<object, Job>();
  /** Runs begin in this asynchronous context, never in that of the code that created a job or started its timer. */
  readonly #context = new AsyncResource('SingletonCron');
  readonly #locks: Locks;
  readonly #claimer: TickClaimer;
  readonly #recovery: Recovery;
  readonly #isTest: boolean;
  /** Ticks that a test has run with `fire(key, { tick })`. */
  readonly #namedTicks = new Set<string>();
  #isStarted = false;

  constructor({ locks, elections, isTest = false }: RunnerParts) {
    const claimer = new TickClaimer(locks, elections);
    const invoke: RecoveryParts['invoke'] = (...invocation) => this.#invoke(...invocation);
    const recovery = new Recovery({ locks, claimer, context: this.#context, invoke });
    this.jobs = new JobRegistry({ elections, recovery, stopping: locks.stopping, keepsJobs: isTest });
    this.#locks = locks;
    this.#claimer = claimer;
    this.#recovery = recovery;
    this.#isTest = isTest;
  }

  /** Makes the method of this instance a job. Its ticks count from this call on. */
  register({ instance, method, guard }: Pick<MethodCall, 'instance' | 'method' | 'guard'>, job: Job): void {
    const methods = this.#methodsByInstance.get(instance) ?? new Map<string, RegisteredMethod>();
    this.#methodsByInstance.set(instance, methods);
    methods.set(method, { ...this.#createRegisteredJob(job), guard });
    this.jobs.add(job);
  }

  isRegistered(instance: object, method: string): boolean {
    return this.#methodsByInstance.get(instance)?.has(method) ?? false;
  }

  /**
   * Makes a function a job and replaces an earlier job with this key. The job ends when it is unregistered, or when `fire` is
   * garbage-collected: a run in progress then continues, and no further run begins. `fire` rejects as {@link fire} does.
   */
  guard(job: Job, body: JobBody): { fire: () => Promise<unknown>; unregister: () => void } {
    const registered = this.#createRegisteredJob(job);
    const unregister = this.jobs.addGuarded(job);
    const fire = async () => {
      const invocation = this.#takeInvocation(job);
      if (invocation) return this.#run(invocation, body);
      if (!job.isFiring()) return undefined;
      return this.#context.runInAsyncScope(() => this.#run(registered, body));
    };
    return { fire, unregister };
  }

  /** Starts the recovery of missed ticks and dead runs. Before this call, jobs run at their ticks only. */
  start(): void {
    this.#isStarted = true;
    this.jobs.start();
  }

  /**
   * Runs when a timer fires, in every replica. Rejects with what the body throws, or with `LockLostError` if the run was lost.
   *
   * @throws LockConfigError if the application has not booted or the instance is no job of it
   */
  async fire({ instance, method, guard, body, argument }: MethodCall): Promise<unknown> {
    const registered = this.#methodsByInstance.get(instance)?.get(method);
    if (!registered) {
      const location = `${instance.constructor.name}.${method}`;
      throw this.#isStarted ? unknownJobError(location) : notBootedError(location, 'jobs');
    }
    const { job } = registered;
    const invocation = this.#takeInvocation(job);
    if (invocation) return this.#run(invocation, body);
    if (job.isDisabled) return undefined;
    const isInRun = this.#locks.jobs.isRunning(job.key);
    const isSuper = guard !== registered.guard;
    if (isSuper ? isInRun : this.#isRunOf(job, argument)) return body(argument as CronRun);
    // A timer that a run has set, as by `setTime()`, fires in the context of that run.
    if (isInRun) return this.#context.runInAsyncScope(() => this.#run(registered, body));
    return this.#run(registered, body);
  }

  #isRunOf(job: Job, argument: unknown): boolean {
    return typeof argument === 'object' && argument !== null && this.#jobsByRun.get(argument) === job;
  }

  /** Runs a job through all decorators of its method, whatever its schedule. For tests. */
  async runNow(key: string, tickMs?: number): Promise<unknown> {
    const job = this.jobs.find(key);
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
  async #claimWithoutTick(job: Job, givenTickMs?: number): Promise<ClaimedRun | undefined> {
    const nowMs = this.#locks.clock.wallMs();
    const tickMs = givenTickMs ?? job.plan?.latest(nowMs) ?? nowMs;
    const lease = await this.#claimer.claimWithoutTick(job);
    if (lease instanceof Lease) return { tickMs, lease };
    this.#emitSkipped(job, tickMs, lease);
    return undefined;
  }

  #emitSkipped(job: Job, tickMs: number, reason: TickSkipReason): void {
    this.#locks.events.emit('tick-skipped', { job: job.key, tick: new Date(tickMs), reason });
  }

  #createRegisteredJob(job: Job): RegisteredJob {
    checkJobOptions(job, this.#locks);
    if (this.#isTest) return { job, claim: () => this.#claimWithoutTick(job) };
    const tickCalculator = new TickCalculator(job, this.#locks.clock.wallMs());
    return { job, claim: () => this.#claimDueTick(job, tickCalculator) };
  }

  async #claimDueTick(job: Job, tickCalculator: TickCalculator): Promise<ClaimedRun | undefined> {
    const tick = tickCalculator.calculateTick(this.#locks.clock.wallMs());
    if (!tick) return undefined;
    const outcome = await this.#claimer.claimWhenDue(job, tick);
    if (outcome instanceof Lease) return { tickMs: tick.tickMs, lease: outcome };
    const reason = this.#recovery.handleRefusal(job, tick, outcome);
    if (reason !== undefined) this.#emitSkipped(job, tick.tickMs, reason);
    return undefined;
  }

  /** The tick for which this class invoked the job, unless an earlier call has used it. */
  #takeInvocation(job: Job): PendingInvocation | undefined {
    const invocation = this.#pendingInvocations.getStore();
    if (invocation?.job !== job || invocation.isUsed) return undefined;
    invocation.isUsed = true;
    return invocation;
  }

  /**
   * Invokes the job for a tick whose timer fired long ago or never. Resolves with the result of the claim, while the run goes on;
   * with `undefined` if other decorators have ended without calling the method. A later call still claims the tick.
   */
  #invoke(job: Job, tick: Tick, claimed?: Tick): Promise<Lease | NotGranted | undefined> {
    return new Promise((resolve) => {
      let isLate = false;
      const claim = async () => {
        const outcome = await this.#claimer.claimNow(job, tick, claimed);
        if (typeof outcome === 'object') resolve(outcome);
        if (outcome instanceof Lease) return { tickMs: tick.tickMs, lease: outcome };
        const reason = this.#recovery.handleRefusal(job, tick, outcome);
        if (reason !== undefined && (isLate || reason === 'stale'))
          this.#emitSkipped(job, tick.tickMs, reason);
        return undefined;
      };
      const invoking = this.#pendingInvocations.run({ job, claim, isUsed: false }, async () => {
        await job.invoke();
      });
      const onEnd = () => {
        isLate = true;
        resolve(undefined);
      };
      void invoking.catch((error: unknown) => job.onError(error)).finally(onEnd);
    });
  }

  async #run({ job, claim }: RegisteredJob, body: JobBody): Promise<unknown> {
    const claimed = await claim();
    if (!claimed) return undefined;
    return runJob({ locks: this.#locks, job, ...claimed }, async (run) => {
      this.#jobsByRun.set(run, job);
      try {
        return await body(run);
      } finally {
        this.#jobsByRun.delete(run);
      }
    });
  }
}

const unknownJobError = (location: string) =>
  new LockConfigError(
    `${location} is not a job of this application: expected an instance that Nest created and that is neither request-scoped ` +
      `nor transient.`,
  );
