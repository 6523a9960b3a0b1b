import { AsyncResource } from 'node:async_hooks';
import { LockConfigError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { RecognisedAcrossCopies } from '../core/package-copies.js';
import { notBootedError } from '../decorators/decorated-method.js';
import { getPropertyToken } from '../decorators/injected-property.js';
import { rejectStream } from '../decorators/reject-stream.js';
import type { Elections } from '../election/elections.js';
import { checkJobOptions } from './claim-params.js';
import { JobInvoker, type RegisteredJob } from './job-invoker.js';
import { JobReader } from './job-reader.js';
import { runJob } from './job-run.js';
import type { CronRun, Job } from './job.js';
import { ManualClaimer } from './manual-claimer.js';
import { ManualRuns } from './manual-runs.js';
import { PlanAges } from './plan/plan-ages.js';
import { TickCalculator } from './plan/tick-calculator.js';
import { JobRegistry } from './registry/job-registry.js';
import { TestRuns } from './test-runs.js';
import { TickClaimer } from './tick-claimer.js';
import { TickRuns } from './tick-runs.js';

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

type RegisteredMethod = RegisteredJob & Pick<MethodCall, 'guard'>;

interface RunnerParts {
  readonly locks: Locks;
  readonly elections: Elections;
  /** Whether each call of a job runs it, as under `LockTestingModule`. */
  readonly isTest?: boolean;
}

/** The property token of the job runner of the module with this name. */
export const getJobRunnerPropertyToken = (name?: string) =>
  getPropertyToken('The runner of @SingletonCron jobs', name);

/** Runs guarded jobs: claims the tick that a timer fired for in the store, and runs the body if it was granted. */
@RecognisedAcrossCopies('JobRunner')
export class JobRunner {
  readonly jobs: JobRegistry;
  readonly reader: JobReader;
  /** Runs that a person asked for. */
  readonly manualRuns: ManualRuns;
  /** Runs that a test asked for. */
  readonly testRuns: TestRuns;
  readonly #tickRuns: TickRuns;
  readonly #methodsByInstance = new Map<object, Map<string, RegisteredMethod>>();
  readonly #jobInvoker = new JobInvoker();
  /** The runs in progress by their `CronRun`. A method that passes its run on to itself stays in that run. */
  readonly #jobsByRun = new WeakMap<object, Job>();
  /** Runs begin in this asynchronous context, never in that of the code that created a job or started its timer. */
  readonly #context = new AsyncResource('SingletonCron');
  readonly #locks: Locks;
  readonly #isTest: boolean;
  #isStarted = false;

  constructor({ locks, elections, isTest = false }: RunnerParts) {
    const claimer = new TickClaimer(locks, elections);
    const shared = { claimer, context: this.#context, jobInvoker: this.#jobInvoker };
    const planAges = new PlanAges(locks.clock);
    this.#tickRuns = new TickRuns({ locks, planAges, ...shared });
    const { recovery, deferred } = this.#tickRuns;
    this.jobs = new JobRegistry({ elections, recovery, stopping: locks.stopping, keepsJobs: isTest });
    this.reader = new JobReader(locks, planAges);
    this.manualRuns = new ManualRuns({ ...shared, claimer: new ManualClaimer(locks, claimer), deferred });
    this.testRuns = new TestRuns({ locks, ...shared, tickRuns: this.#tickRuns });
    this.#locks = locks;
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
      const invoked = this.#jobInvoker.take(job);
      if (invoked) return this.#run(invoked, body);
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
    const invoked = this.#jobInvoker.take(job);
    if (invoked) return this.#run(invoked, body);
    // With the run that it received, a method may call itself, or that of its base class.
    if (this.#isRunOf(job, argument)) return body(argument as CronRun);
    const isInRun = this.#locks.jobs.isRunning(job.key);
    if (isInRun && guard !== registered.guard) return body(argument as CronRun);
    if (job.isDisabled) return undefined;
    // A timer that a run has set, as by `setTime()`, fires in the context of that run.
    if (isInRun) return this.#context.runInAsyncScope(() => this.#run(registered, body));
    return this.#run(registered, body);
  }

  #isRunOf(job: Job, argument: unknown): boolean {
    return typeof argument === 'object' && argument !== null && this.#jobsByRun.get(argument) === job;
  }

  #createRegisteredJob(job: Job): RegisteredJob {
    checkJobOptions(job, this.#locks);
    if (this.#isTest) return { job, claim: () => this.testRuns.claim(job) };
    const tickCalculator = new TickCalculator(job, this.#locks.clock.wallMs());
    return { job, claim: () => this.#tickRuns.claimDue(job, tickCalculator) };
  }

  async #run({ job, claim }: RegisteredJob, body: JobBody): Promise<unknown> {
    const claimed = await claim();
    if (!claimed) return undefined;
    const { onEnd, turn, ...run } = claimed;
    const callBody = (cronRun: CronRun) => this.#callBody(job, cronRun, body);
    const start = () => runJob({ locks: this.#locks, job, ...run }, callBody);
    try {
      // Then a run that closes the application does not wait for this lock either.
      return await (turn ? this.#locks.runWithLock(turn, start) : start());
    } finally {
      await onEnd?.();
    }
  }

  async #callBody(job: Job, run: CronRun, body: JobBody): Promise<unknown> {
    this.#jobsByRun.set(run, job);
    try {
      return rejectStream(await body(run), `The job '${job.key}'`);
    } finally {
      this.#jobsByRun.delete(run);
    }
  }
}

const unknownJobError = (location: string) =>
  new LockConfigError(
    `${location} is not a job of this application: expected an instance that Nest created, that is neither request-scoped nor ` +
      `transient, and whose class does not override the method without the decorator.`,
  );
