import {
  type BeforeApplicationShutdown,
  Logger,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { type DiscoveryService, type LazyModuleLoader, type ModuleRef, ModulesContainer } from '@nestjs/core';
import { SchedulerRegistry } from '@nestjs/schedule';
import { registerLocks } from '../core/data-source-locks.js';
import { LockConfigError, LockUnavailableError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { runAfterBootstrap } from '../decorators/bootstrap-hook.js';
import { type ProviderSource, withEnhancers } from '../decorators/decorated-instance.explorer.js';
import { getLockServicePropertyToken } from '../decorators/locked.decorator.js';
import {
  type Wrapper,
  clearInjectedProperties,
  fillInjectedProperties,
} from '../decorators/property-injector.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';
import { registerElections } from '../election/election.explorer.js';
import type { Elections } from '../election/elections.js';
import { getElectionsPropertyToken } from '../election/leader-election.js';
import type { LockService } from '../lock.service.js';
import { type JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import type { Job } from '../schedule/job.js';
import { findLazyJobs, registerJobs } from '../schedule/registry/job.explorer.js';
import { NestScheduler } from '../schedule/registry/nest-scheduler.js';
import { describeStoreFailure } from './store-failure.js';

/** The logger under whose name @nestjs/schedule logs failed jobs. */
const SCHEDULER_LOGGER = new Logger('Scheduler');

/** How long the boot waits for a store that does not answer. */
const BOOT_CHECK_TIMEOUT_MS = 2_000;
/** The same with `failOnBoot`, where the boot then fails. */
const REQUIRED_BOOT_CHECK_TIMEOUT_MS = 10_000;

/** A boot that takes longer is logged, because a lifecycle hook may be waiting for a leader that cannot be elected yet. */
const LONG_BOOT_WARNING_MS = 10_000;

/** Marks the lifecycles of all copies of this package. */
const LIFECYCLE = Symbol.for('nestjs-distributed-lock:lifecycle');

interface LifecycleParts {
  readonly name: string | undefined;
  readonly options: ResolvedModuleOptions;
  readonly locks: Locks;
  readonly service: LockService;
  readonly runner: JobRunner;
  readonly elections: Elections;
  readonly discovery: DiscoveryService;
  readonly modules: ModuleRef;
  readonly lazyModules: LazyModuleLoader;
}

/**
 * Follows the lifecycle of the application. At boot it prepares decorated instances. At shutdown it stops granting locks,
 * waits for work under locks, and closes the connections that this library opened.
 *
 * It must belong to a module that is not global. Nest shuts global modules down last, in the order of their imports: if this
 * module is imported before TypeOrmModule, locks would be released after their data source has been closed.
 */
export class LockLifecycle
  implements
    OnModuleInit,
    OnApplicationBootstrap,
    OnModuleDestroy,
    BeforeApplicationShutdown,
    OnApplicationShutdown
{
  readonly #parts: LifecycleParts;
  readonly #logger = new Logger('DistributedLockModule');

  readonly #unregisterCallbacks: (() => void)[] = [];
  /** The providers and instances that are prepared already. */
  readonly #prepared = { providers: new WeakSet<Wrapper>(), instances: new WeakSet() };
  readonly #warnedLazyJobs = new Set<string>();
  #isPrepared = false;
  #longBootTimer: { cancel(): void } | undefined;

  constructor(parts: LifecycleParts) {
    this.#parts = parts;
    fillInjectedProperties(parts.discovery, this.#injectedServices, this.#prepared.providers);
    this.#followLazyModules();
  }

  get [LIFECYCLE]() {
    return { name: this.#parts.name };
  }

  async onModuleInit(): Promise<void> {
    try {
      this.#prepareInstances();
      this.#logTestingInProduction();
      this.#registerDataSources();
      await this.#checkStore();
      this.#longBootTimer = this.#parts.locks.clock.after(LONG_BOOT_WARNING_MS, () => this.#warnOfLongBoot());
    } catch (error) {
      await this.#close();
      throw error;
    }
  }

  onApplicationBootstrap(): void {
    const { elections, runner, modules } = this.#parts;
    runAfterBootstrap(modules.get(ModulesContainer, { strict: false }), () => {
      this.#longBootTimer?.cancel();
      this.#warnOfDefaultNamespace();
      elections.start();
      runner.start();
    });
  }

  /** Aborts `stopping`, which ends all terms of this process at once. */
  onModuleDestroy(): void {
    this.#parts.locks.stopGranting();
  }

  async beforeApplicationShutdown(): Promise<void> {
    const { locks, elections, options } = this.#parts;
    const heldKeys = await locks.drain(options.shutdown);
    elections.close();
    if (heldKeys.length > 0) {
      this.#logger.warn(
        `Still held at the end of shutdown, because their work is still running or release() was not called: ` +
          `${heldKeys.slice(0, 10).join(', ')}${heldKeys.length > 10 ? `, … (${heldKeys.length} locks)` : ''}. Their leases expire by themselves.`,
      );
    }
  }

  onApplicationShutdown(): Promise<void> {
    return this.#close();
  }

  /**
   * Registers the data sources of the application and of the backend. Transactions then find the locks, and an open
   * transaction is noticed when a lock is released.
   */
  #registerDataSources(): void {
    const { name, options, locks, discovery } = this.#parts;
    const provided = discovery.getProviders().map(({ instance }) => instance as unknown);
    for (const source of new Set([options.backend.dataSource, ...provided])) {
      if (!isDataSource(source)) continue;
      const unregister = registerLocks(source, { locks, isUnnamed: name === undefined });
      this.#unregisterCallbacks.push(unregister, locks.watchTransactions(source));
    }
  }

  #prepareInstances(): void {
    const { name, options, runner, elections, discovery, modules } = this.#parts;
    this.#throwIfDuplicate();
    registerElections(this.#withEnhancers, elections, name, this.#prepared.instances);
    this.#isPrepared = true;
    const onError = (error: unknown) => SCHEDULER_LOGGER.error(error);
    const scheduler = options.isTest ? undefined : new NestScheduler(discovery);
    const jobs = registerJobs(discovery, runner, { moduleName: name, onError, scheduler });
    if (jobs.length > 0 && scheduler && !hasScheduler(modules)) {
      this.#logger.warn(
        `The scheduler of @nestjs/schedule is missing, so this process runs none of its ${jobs.length} jobs by itself: ` +
          `${keysOf(jobs)}. Import ScheduleModule.forRoot() in each process that must run them.`,
      );
    }
  }

  /** Wraps the loader, because Nest calls no hooks of modules that are loaded lazily. */
  #followLazyModules(): void {
    const { lazyModules } = this.#parts;
    const load = lazyModules.load.bind(lazyModules);
    lazyModules.load = async (...given) => {
      const loaded = await load(...given);
      this.#prepareLazyInstances();
      return loaded;
    };
  }

  #prepareLazyInstances(): void {
    const { name, locks, runner, elections, discovery } = this.#parts;
    if (locks.stopping.aborted) return;
    fillInjectedProperties(discovery, this.#injectedServices, this.#prepared.providers);
    // At boot, onModuleInit() does the rest.
    if (!this.#isPrepared) return;
    registerElections(this.#withEnhancers, elections, name, this.#prepared.instances);
    for (const location of findLazyJobs(discovery, runner, name)) {
      if (this.#warnedLazyJobs.has(location)) continue;
      this.#warnedLazyJobs.add(location);
      this.#logger.warn(
        `${location} never runs here: its module was loaded lazily, and @nestjs/schedule looks for jobs at boot only. Import the ` +
          `module at boot, or create the job with CronRuns.guard() and SchedulerRegistry.`,
      );
    }
  }

  get #withEnhancers(): ProviderSource {
    const { discovery, modules } = this.#parts;
    return withEnhancers(discovery, modules.get(ModulesContainer, { strict: false }));
  }

  get #injectedServices(): ReadonlyMap<symbol, unknown> {
    const { name, service, runner, elections } = this.#parts;
    return new Map<symbol, unknown>([
      [getLockServicePropertyToken(name), service],
      [getJobRunnerPropertyToken(name), runner],
      [getElectionsPropertyToken(name), elections],
    ]);
  }

  #close(): Promise<void> {
    this.#longBootTimer?.cancel();
    clearInjectedProperties(this.#parts.discovery, this.#injectedServices);
    for (const unregister of this.#unregisterCallbacks) unregister();
    return this.#parts.locks.close();
  }

  /** With two services under one token, Nest would inject whichever it finds first. */
  #throwIfDuplicate(): void {
    const { name, discovery } = this.#parts;
    const others = discovery
      .getProviders()
      .map(({ instance }) => instance as unknown)
      .filter(isLifecycle)
      .filter((instance) => instance[LIFECYCLE].name === name);
    if (others.length > 1) {
      const which = name === undefined ? 'without a name' : `with the name '${name}'`;
      throw new LockConfigError(
        `Expected one DistributedLockModule ${which} in the application, found ${others.length}. Import it once, in the ` +
          `root module, or give each its own name.`,
      );
    }
  }

  #warnOfLongBoot(): void {
    const names = this.#parts.elections.names.map((election) => `"${election}"`).join(', ');
    if (names === '') return;
    this.#logger.warn(
      `The application has not booted after ${LONG_BOOT_WARNING_MS} ms. These elections begin only after every ` +
        `onApplicationBootstrap has ended: ${names}. A hook that waits for a leader therefore waits forever: do not await a ` +
        `leader in a hook, or move the work into a method with @OnElected().`,
    );
  }

  #logTestingInProduction(): void {
    if (!this.#parts.options.isTest || process.env['NODE_ENV'] !== 'production') return;
    this.#logger.error(
      'LockTestingModule is imported and NODE_ENV is "production": its locks are in this process only, so replicas do not ' +
        'exclude each other and jobs run in every replica. Import DistributedLockModule.forRoot() with the backend of your store.',
    );
  }

  /** Only if there are jobs or elections: their keys are known at boot, and two applications often use the same ones. */
  #warnOfDefaultNamespace(): void {
    const { options, runner, elections } = this.#parts;
    const { namespace, isNamespaceGiven, isTest, backend } = options;
    const keys = [...new Set([...runner.keys, ...elections.names])];
    const isShared = !isTest && backend.name !== 'memory';
    if (isNamespaceGiven || !isShared || keys.length === 0) return;
    const quotedKeys = keys.slice(0, 3).map((key) => `'${key}'`);
    const more = keys.length > 3 ? ` and ${keys.length - 3} more` : '';
    this.#logger.warn(
      `The namespace is the default, '${namespace}'. Another application on this store with the same namespace shares the jobs ` +
        `and elections ${quotedKeys.join(', ')}${more}: only one of the two runs them. Set namespace to the name of your ` +
        `application in the options of DistributedLockModule, in all replicas at once; '${namespace}' keeps the current keys.`,
    );
  }

  async #checkStore(): Promise<void> {
    const { locks, options } = this.#parts;
    try {
      await locks.check(options.failOnBoot ? REQUIRED_BOOT_CHECK_TIMEOUT_MS : BOOT_CHECK_TIMEOUT_MS);
      const advice = await locks.advice(BOOT_CHECK_TIMEOUT_MS);
      if (advice !== undefined) this.#logger.warn(advice);
    } catch (error) {
      if (error instanceof LockConfigError) throw error;
      const failure = `The lock store ${describeStoreFailure(error)}.`;
      if (options.failOnBoot) {
        throw new LockUnavailableError(`${failure} The boot fails because failOnBoot is true.`, {
          cause: error,
        });
      }
      this.#logger.warn(`${failure} Locks are refused until it can be used.`);
    }
  }
}

const keysOf = (jobs: readonly Job[]) =>
  jobs
    .slice(0, 10)
    .map(({ key }) => key)
    .join(', ');

/** Checks with `in` first: a strict proxy throws when an unknown property is read. */
const isLifecycle = (value: unknown): value is Pick<LockLifecycle, typeof LIFECYCLE> =>
  typeof value === 'object' && value !== null && LIFECYCLE in value;

/** Recognizes a `DataSource` by its properties: the main entry point must load without TypeORM. */
const isDataSource = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && 'createQueryRunner' in value && 'manager' in value;

function hasScheduler(modules: ModuleRef): boolean {
  try {
    return modules.get(SchedulerRegistry, { strict: false }) instanceof SchedulerRegistry;
  } catch {
    return false;
  }
}
