import {
  type BeforeApplicationShutdown,
  Logger,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import type { DiscoveryService, LazyModuleLoader, ModulesContainer } from '@nestjs/core';
import { LockConfigError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { withEnhancers } from '../decorators/find-methods.js';
import { getLockServicePropertyToken } from '../decorators/locked.decorator.js';
import { checkLockedKinds } from '../decorators/locked-kinds.js';
import { PropertyInjector } from '../decorators/injected-property.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';
import { registerElections } from '../election/election.explorer.js';
import type { Elections } from '../election/elections.js';
import { getElectionsPropertyToken } from '../election/leader-election.service.js';
import type { LockService } from '../lock.service.js';
import { type JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { findLazyJobs, registerJobs } from '../schedule/registry/job.explorer.js';
import { JobOverrides } from '../schedule/registry/job-overrides.js';
import { NestScheduler } from '../schedule/registry/nest-scheduler.js';
import { findUnguardedJobs } from '../schedule/registry/unguarded-jobs.js';
import {
  MEMORY_IN_PRODUCTION,
  TESTING_IN_PRODUCTION,
  defaultNamespaceWarning,
  duplicateModuleMessage,
  lazyJobWarning,
  longBootWarning,
  longDrainWarning,
  missingSchedulerWarning,
  stillHeldWarning,
  testingBesideModuleMessage,
  unguardedJobWarning,
} from './lifecycle-messages.js';
import { registerDataSources } from './data-source-registration.js';
import { runAfterBootstrap, runAfterLazyLoad } from './lifecycle-hooks.js';
import { checkStore } from './store-check.js';

/** A boot that takes longer is logged, because a lifecycle hook may be waiting for a leader that cannot be elected yet. */
const LONG_BOOT_WARNING_MS = 10_000;
/** A shutdown that waits longer for work under locks is logged. */
const LONG_DRAIN_WARNING_MS = 1_000;

/** Marks the lifecycles of all copies of this package. */
const LIFECYCLE = Symbol.for('nestjs-distributed-lock:lifecycle');

export interface LifecycleParts {
  readonly name: string | undefined;
  readonly options: ResolvedModuleOptions;
  readonly locks: Locks;
  readonly service: LockService;
  readonly runner: JobRunner;
  readonly elections: Elections;
  readonly discovery: DiscoveryService;
  readonly modules: ModulesContainer;
  readonly lazyModules: LazyModuleLoader;
}

/**
 * Follows the lifecycle of the application: what happens at boot and at shutdown, in this order.
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
  readonly #injector: PropertyInjector;
  /** The instances whose elections are joined already. */
  readonly #candidates = new WeakSet();
  readonly #warnedLazyJobs = new Set<string>();
  #isInitialized = false;
  #unregisterCallbacks: readonly (() => void)[] = [];
  #longBootTimer?: { cancel(): void };

  /** Runs while Nest creates the instances of the application. */
  constructor(parts: LifecycleParts) {
    const { name, service, runner, elections } = parts;
    const services = new Map<symbol, unknown>([
      [getLockServicePropertyToken(name), service],
      [getJobRunnerPropertyToken(name), runner],
      [getElectionsPropertyToken(name), elections],
    ]);
    this.#parts = parts;
    this.#injector = new PropertyInjector(parts.discovery, services);
    this.#injector.fill();
    runAfterLazyLoad(parts.lazyModules, () => this.#prepareLazyInstances());
  }

  get [LIFECYCLE]() {
    return { name: this.#parts.name, isTest: this.#parts.options.isTest };
  }

  async onModuleInit(): Promise<void> {
    const { options, locks } = this.#parts;
    try {
      this.#throwIfDuplicate();
      this.#checkLockedKinds();
      this.#registerElections();
      this.#isInitialized = true;
      this.#registerJobs();
      if (process.env['NODE_ENV'] === 'production') this.#reportLocalLocks();
      this.#unregisterCallbacks = registerDataSources(this.#parts);
      await checkStore(locks, { failOnBoot: options.failOnBoot, logger: this.#logger });
      this.#longBootTimer = locks.clock.after(LONG_BOOT_WARNING_MS, () => this.#warnOfLongBoot());
    } catch (error) {
      await this.#close();
      throw error;
    }
  }

  #reportLocalLocks(): void {
    const { isTest, backend } = this.#parts.options;
    if (isTest) this.#logger.error(TESTING_IN_PRODUCTION);
    else if (backend.name === 'memory') this.#logger.warn(MEMORY_IN_PRODUCTION);
  }

  /** Elections and the recovery of jobs begin after this hook of all modules: only then can the application do their work. */
  onApplicationBootstrap(): void {
    const { elections, runner, options, modules } = this.#parts;
    runAfterBootstrap(modules, () => {
      this.#longBootTimer?.cancel();
      const warning = defaultNamespaceWarning(options, [...runner.jobs.keys, ...elections.names]);
      if (warning !== undefined) this.#logger.warn(warning);
      elections.start();
      runner.start();
    });
  }

  /** Aborts `stopping`, which ends all terms of this process at once. */
  onModuleDestroy(): void {
    this.#parts.locks.stopGranting();
  }

  /** Waits for work under locks. */
  async beforeApplicationShutdown(): Promise<void> {
    const { locks, elections, options } = this.#parts;
    const timer = locks.clock.after(LONG_DRAIN_WARNING_MS, () => this.#warnOfLongDrain());
    const heldKeys = await locks.drain(options.shutdown);
    timer.cancel();
    elections.close();
    if (heldKeys.length > 0) this.#logger.warn(stillHeldWarning(heldKeys));
  }

  /** Closes the connections that this library opened. */
  onApplicationShutdown(): Promise<void> {
    return this.#close();
  }

  #close(): Promise<void> {
    this.#longBootTimer?.cancel();
    this.#injector.clear();
    for (const unregister of this.#unregisterCallbacks) unregister();
    return this.#parts.locks.close();
  }

  /** With two services under one token, Nest would inject whichever it finds first. */
  #throwIfDuplicate(): void {
    const { name } = this.#parts;
    const all = this.#lifecycles().filter((lifecycle) => lifecycle[LIFECYCLE].name === name);
    if (all.length < 2) return;
    const tests = all.filter((lifecycle) => lifecycle[LIFECYCLE].isTest);
    const isMixed = tests.length > 0 && tests.length < all.length;
    throw new LockConfigError(
      isMixed ? testingBesideModuleMessage(all.length) : duplicateModuleMessage(name, all.length),
    );
  }

  /** Those of all lock modules. */
  #lifecycles(): readonly LockLifecycle[] {
    const providers = this.#parts.discovery.getProviders().map(({ instance }) => instance as unknown);
    return providers.filter(isLifecycle);
  }

  #checkLockedKinds(): void {
    const { name, discovery, modules } = this.#parts;
    const token = getLockServicePropertyToken(name);
    checkLockedKinds(withEnhancers(discovery, modules), { token, moduleName: name });
  }

  #registerElections(): void {
    const { name, elections, discovery, modules } = this.#parts;
    registerElections(withEnhancers(discovery, modules), elections, name, this.#candidates);
  }

  #registerJobs(): void {
    const { name, options, runner, discovery } = this.#parts;
    const { isTest } = options;
    const scheduler = new NestScheduler(discovery);
    const overrides = new JobOverrides(options.jobs);
    const jobs = registerJobs(discovery, runner, { moduleName: name, scheduler, overrides, isTest });
    const keys = jobs.map(({ key }) => key);
    // In a test, all lock modules have the same options, and a job belongs to one of them.
    if (!isTest || this.#lifecycles().length === 1) overrides.throwIfUnused(keys);
    if (isTest) return;
    if (keys.length > 0 && !scheduler.exists) this.#logger.warn(missingSchedulerWarning(keys));
    if (!scheduler.exists) return;
    for (const { location, decorator } of findUnguardedJobs(discovery, name))
      this.#logger.warn(unguardedJobWarning(location, decorator));
  }

  #prepareLazyInstances(): void {
    const { name, locks, runner, discovery } = this.#parts;
    if (locks.stopping.aborted) return;
    this.#injector.fill();
    // Before that, onModuleInit() will do the rest.
    if (!this.#isInitialized) return;
    this.#registerElections();
    for (const location of findLazyJobs(discovery, runner, name)) {
      if (this.#warnedLazyJobs.has(location)) continue;
      this.#warnedLazyJobs.add(location);
      this.#logger.warn(lazyJobWarning(location));
    }
  }

  #warnOfLongDrain(): void {
    const { locks, options } = this.#parts;
    if (locks.heldKeys.length > 0) this.#logger.warn(longDrainWarning(locks.heldKeys, options.shutdown));
  }

  #warnOfLongBoot(): void {
    const { elections, runner } = this.#parts;
    const waiting = { elections: elections.names, jobs: runner.jobs.watchedKeys };
    if (waiting.elections.length + waiting.jobs.length > 0)
      this.#logger.warn(longBootWarning(LONG_BOOT_WARNING_MS, waiting));
  }
}

/** Checks with `in` first: a strict proxy throws when an unknown property is read. */
const isLifecycle = (value: unknown): value is LockLifecycle =>
  typeof value === 'object' && value !== null && LIFECYCLE in value;
