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
import { LockConfigError, LockUnavailableError } from '../core/errors.js';
import { runAfterBootstrap } from '../decorators/bootstrap-hook.js';
import type { Locks } from '../core/locks.js';
import { registerLocks } from '../core/data-source-locks.js';
import { getLockServicePropertyToken } from '../decorators/locked.decorator.js';
import {
  type Wrapper,
  fillInjectedProperties,
  clearInjectedProperties,
} from '../decorators/property-injector.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';
import { registerElections } from '../election/election.explorer.js';
import type { Elections } from '../election/elections.js';
import { getElectionsPropertyToken } from '../election/leader-election.js';
import { type ProviderSource, withEnhancers } from '../decorators/decorated-instance.explorer.js';
import type { LockService } from '../lock.service.js';
import type { Job } from '../schedule/job.js';
import { findLazyJobs, registerJobs } from '../schedule/registry/job.explorer.js';
import { type JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { NestScheduler } from '../schedule/registry/nest-scheduler.js';
import { describeStoreFailure } from './store-failure.js';

/** What @nestjs/schedule tells of failed jobs by. */
const SCHEDULER_LOGGER = new Logger('Scheduler');

/** How long the boot waits for a store that does not answer, */
const BOOT_CHECK_TIMEOUT_MS = 2_000;
/** and before it fails for that. */
const REQUIRED_BOOT_CHECK_TIMEOUT_MS = 10_000;

/** Until a boot that has not ended is told to whoever may wait in it for a leader. */
const LONG_BOOT_WARNING_MS = 10_000;

/** By which the lifecycles of all copies of this package are known. */
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
 * Follows the life of the application: prepares decorated instances at boot, and at shutdown stops granting, lets work
 * end, and closes what is ours.
 *
 * It must live in a module that is not global: Nest shuts global ones down last and in the order of their imports, which
 * would be too late for whoever lists this module before TypeOrmModule.
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
  /** Whose instances are prepared. */
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

  /** Leaders step down at once, as `stopping` tells them. */
  onModuleDestroy(): void {
    this.#parts.locks.stopGranting();
  }

  async beforeApplicationShutdown(): Promise<void> {
    const { locks, elections, options } = this.#parts;
    const heldKeys = await locks.drain(options.shutdown);
    elections.close();
    if (heldKeys.length > 0) {
      this.#logger.warn(
        `Still held at the end of shutdown, because work under them goes on or release() was not called: ` +
          `${heldKeys.slice(0, 10).join(', ')}${heldKeys.length > 10 ? `, … (${heldKeys.length} locks)` : ''}. Their leases end by themselves.`,
      );
    }
  }

  onApplicationShutdown(): Promise<void> {
    return this.#close();
  }

  /** Those of the application, and that of the backend: their transactions find the locks, and locks see their transactions. */
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
        `The scheduler of @nestjs/schedule is not there, so this process runs none of its ${jobs.length} jobs by itself: ` +
          `${keysOf(jobs)}. Import ScheduleModule.forRoot() in each process that is to run them.`,
      );
    }
  }

  /** Nest calls no hook of modules that are loaded lazily. */
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
    // All others are prepared at boot.
    if (!this.#isPrepared) return;
    registerElections(this.#withEnhancers, elections, name, this.#prepared.instances);
    for (const location of findLazyJobs(discovery, runner, name)) {
      if (this.#warnedLazyJobs.has(location)) continue;
      this.#warnedLazyJobs.add(location);
      this.#logger.warn(
        `${location} never runs here: its module was loaded lazily, and @nestjs/schedule looks for jobs at boot only. Import the ` +
          `module, or make the job with CronRuns.guard() and SchedulerRegistry.`,
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

  /** Of two services under one token Nest would hand out whichever it finds first. */
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
          `root module, or give each a name of its own.`,
      );
    }
  }

  #warnOfLongBoot(): void {
    const names = this.#parts.elections.names.map((election) => `"${election}"`).join(', ');
    if (names === '') return;
    this.#logger.warn(
      `The application has not booted after ${LONG_BOOT_WARNING_MS} ms, and elections begin only when every onApplicationBootstrap has ended: ` +
        `${names}. If a hook waits to lead or for a leader, it waits for ever: do not await that in a hook, or put the work into ` +
        `a method with @OnElected().`,
    );
  }

  #logTestingInProduction(): void {
    if (!this.#parts.options.isTest || process.env['NODE_ENV'] !== 'production') return;
    this.#logger.error(
      'LockTestingModule is imported and NODE_ENV is "production": its locks are in this process only, so replicas do not ' +
        'exclude each other and jobs run in every replica. Import DistributedLockModule.forRoot() with the backend of your store.',
    );
  }

  /** Only with jobs and elections, as their keys are known now and are often the same in two applications. */
  #warnOfDefaultNamespace(): void {
    const { options, runner, elections } = this.#parts;
    const { namespace, isNamespaceGiven, isTest, backend } = options;
    const keys = [...new Set([...runner.keys, ...elections.names])];
    const isShared = !isTest && backend.name !== 'memory';
    if (isNamespaceGiven || !isShared || keys.length === 0) return;
    const quotedKeys = keys.slice(0, 3).map((key) => `'${key}'`);
    const more = keys.length > 3 ? ` and ${keys.length - 3} more` : '';
    this.#logger.warn(
      `The namespace is the default, '${namespace}'. Another application on this store that has it too shares the jobs and ` +
        `elections ${quotedKeys.join(', ')}${more}: only one of the two runs them. Set namespace to the name of your ` +
        `application in the options of DistributedLockModule, in all replicas at once; '${namespace}' keeps the present keys.`,
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
      const failure = `The store of locks ${describeStoreFailure(error)}.`;
      if (options.failOnBoot) {
        throw new LockUnavailableError(`${failure} The boot fails, as failOnBoot is true.`, { cause: error });
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

/** Asks first whether the property is there: a strict proxy throws when an unknown one is read. */
const isLifecycle = (value: unknown): value is Pick<LockLifecycle, typeof LIFECYCLE> =>
  typeof value === 'object' && value !== null && LIFECYCLE in value;

/** By shape, because the root must load without TypeORM. */
const isDataSource = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && 'createQueryRunner' in value && 'manager' in value;

function hasScheduler(modules: ModuleRef): boolean {
  try {
    return modules.get(SchedulerRegistry, { strict: false }) instanceof SchedulerRegistry;
  } catch {
    return false;
  }
}
