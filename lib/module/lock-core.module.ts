import { randomUUID } from 'node:crypto';
import {
  type DynamicModule,
  type InjectionToken,
  Logger,
  Module,
  type ModuleMetadata,
  type Provider,
} from '@nestjs/common';
import { DiscoveryModule, DiscoveryService, LazyModuleLoader, ModulesContainer } from '@nestjs/core';
import { systemClock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import { Events } from '../core/events.js';
import { Locks } from '../core/locks.js';
import { describeVersionConflict } from '../core/package-copies.js';
import { getLockServicePropertyToken } from '../decorators/locked.decorator.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';
import { Elections } from '../election/elections.js';
import {
  LeaderElection,
  getElectionsPropertyToken,
  getLeaderElectionToken,
} from '../election/leader-election.service.js';
import { LockService, getLockServiceToken } from '../lock.service.js';
import { CronRuns, getCronRunsToken } from '../schedule/cron-runs.js';
import { JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { type LifecycleParts, LockLifecycle } from './lock-lifecycle.js';
import { createLogListeners } from './event-log.js';
import { RESOLVED_OPTIONS } from './module-override.js';

/** What a module adds: the provider of the options, and the modules that this provider needs. */
export interface LockCoreParts extends Pick<ModuleMetadata, 'imports'> {
  readonly providers: Provider[];
}

/** Everything that `DistributedLockModule` provides. Never global, even if that module is: see {@link LockLifecycle}. */
@Module({})
export class LockCoreModule {
  /** Nest names it in errors, where users look for the module that they have imported. */
  static readonly name = 'DistributedLockModule';

  static register(name: string | undefined, { imports = [], providers }: LockCoreParts): DynamicModule {
    const reason = describeVersionConflict();
    if (reason !== undefined) throw new LockConfigError(`DistributedLockModule: ${reason}`);
    const services = createServiceProviders(name);
    return {
      module: LockCoreModule,
      imports: [DiscoveryModule, ...imports],
      providers: [
        ...providers,
        // With moduleIdGeneratorAlgorithm: 'deep-hash', Nest would treat two modules with different options as the same module.
        { provide: Symbol('DistributedLockModule identity'), useValue: randomUUID() },
        {
          provide: Locks,
          useFactory: (options: ResolvedModuleOptions) => createLocks(options, name),
          inject: [RESOLVED_OPTIONS],
        },
        { provide: Elections, useFactory: createElections, inject: [RESOLVED_OPTIONS, Locks] },
        ...services,
        createLifecycleProvider(name),
      ],
      exports: services.map(({ provide }) => provide),
    };
  }
}

/** What users inject, and what decorated methods find through their injected properties. */
function createServiceProviders(name: string | undefined) {
  const service = getLockServiceToken(name);
  const runner = getJobRunnerPropertyToken(name);
  return [
    { provide: service, useFactory: (locks: Locks) => new LockService(locks), inject: [Locks] },
    { provide: getLockServicePropertyToken(name), useExisting: service },
    {
      provide: getLeaderElectionToken(name),
      useFactory: (elections: Elections) => new LeaderElection(elections),
      inject: [Elections],
    },
    { provide: getElectionsPropertyToken(name), useExisting: Elections },
    { provide: runner, useFactory: createJobRunner, inject: [RESOLVED_OPTIONS, Locks, Elections] },
    {
      provide: getCronRunsToken(name),
      useFactory: (jobRunner: JobRunner, locks: Locks) => new CronRuns({ runner: jobRunner, locks }),
      inject: [runner, Locks],
    },
  ];
}

function createLifecycleProvider(name: string | undefined): Provider {
  const tokens: Record<Exclude<keyof LifecycleParts, 'name'>, InjectionToken> = {
    options: RESOLVED_OPTIONS,
    locks: Locks,
    service: getLockServiceToken(name),
    runner: getJobRunnerPropertyToken(name),
    elections: Elections,
    discovery: DiscoveryService,
    modules: ModulesContainer,
    lazyModules: LazyModuleLoader,
  };
  return {
    provide: LockLifecycle,
    useFactory: (...parts: unknown[]) => {
      const named = Object.keys(tokens).map((key, index) => [key, parts[index]]);
      return new LockLifecycle({ name, ...(Object.fromEntries(named) as Omit<LifecycleParts, 'name'>) });
    },
    inject: Object.values(tokens),
  };
}

const createJobRunner = ({ isTest }: ResolvedModuleOptions, locks: Locks, elections: Elections) =>
  new JobRunner({ locks, elections, isTest });

const createElections = ({ givenLeaseMs }: ResolvedModuleOptions, locks: Locks) =>
  new Elections(locks, givenLeaseMs);

function createLocks(options: ResolvedModuleOptions, module = 'default'): Locks {
  const { backend, namespace, instance, defaults, lockOrder } = options;
  const listeners = createLogListeners(new Logger('DistributedLockModule'), backend.clock ?? systemClock);
  const events = new Events({ namespace, instance, backend: backend.name, module }, listeners);
  return new Locks({ backend, namespace, instance, defaults, events, lockOrder });
}
