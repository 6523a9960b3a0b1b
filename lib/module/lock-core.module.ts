import { randomUUID } from 'node:crypto';
import { type DynamicModule, Logger, Module, type ModuleMetadata, type Provider } from '@nestjs/common';
import { DiscoveryModule, DiscoveryService, LazyModuleLoader, ModuleRef } from '@nestjs/core';
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
} from '../election/leader-election.js';
import { LockService, getLockServiceToken } from '../lock.service.js';
import { CronRuns, getCronRunsToken } from '../schedule/cron-runs.js';
import { JobRunner, getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { LockLifecycle } from './lock.lifecycle.js';
import { createLogListeners } from './lock.logger.js';
import { RESOLVED_OPTIONS } from './module-override.js';

/** What a module adds: the provider of the options, and the modules that this provider needs. */
export interface LockCoreParts extends Pick<ModuleMetadata, 'imports'> {
  readonly providers: Provider[];
}

/** Everything that `DistributedLockModule` provides. Never global, even if that module is: see {@link LockLifecycle}. */
@Module({})
export class LockCoreModule {
  static register(name: string | undefined, { imports = [], providers }: LockCoreParts): DynamicModule {
    const reason = describeVersionConflict();
    if (reason !== undefined) throw new LockConfigError(`DistributedLockModule: ${reason}`);
    const service = getLockServiceToken(name);
    const election = getLeaderElectionToken(name);
    const runs = getCronRunsToken(name);
    return {
      module: LockCoreModule,
      imports: [DiscoveryModule, ...imports],
      providers: [
        ...providers,
        // With moduleIdGeneratorAlgorithm: 'deep-hash', Nest would treat two modules with different options as the same module.
        { provide: Symbol('DistributedLockModule identity'), useValue: randomUUID() },
        { provide: Locks, useFactory: makeLocks, inject: [RESOLVED_OPTIONS] },
        { provide: service, useFactory: (locks: Locks) => new LockService(locks), inject: [Locks] },
        { provide: getLockServicePropertyToken(name), useExisting: service },
        { provide: Elections, useFactory: makeElections, inject: [RESOLVED_OPTIONS, Locks] },
        {
          provide: election,
          useFactory: (elections: Elections) => new LeaderElection(elections),
          inject: [Elections],
        },
        { provide: getElectionsPropertyToken(name), useExisting: Elections },
        {
          provide: getJobRunnerPropertyToken(name),
          useFactory: makeRunner,
          inject: [RESOLVED_OPTIONS, Locks, Elections],
        },
        {
          provide: runs,
          useFactory: (runner: JobRunner, locks: Locks) => new CronRuns({ runner, locks }),
          inject: [getJobRunnerPropertyToken(name), Locks],
        },
        {
          provide: LockLifecycle,
          useFactory: (
            options: ResolvedModuleOptions,
            locks: Locks,
            lockService: LockService,
            runner: JobRunner,
            elections: Elections,
            discovery: DiscoveryService,
            modules: ModuleRef,
            lazyModules: LazyModuleLoader,
          ) =>
            new LockLifecycle({
              ...{ name, options, locks, service: lockService, runner, elections },
              ...{ discovery, modules, lazyModules },
            }),
          inject: [
            ...[RESOLVED_OPTIONS, Locks, service, getJobRunnerPropertyToken(name), Elections],
            ...[DiscoveryService, ModuleRef, LazyModuleLoader],
          ],
        },
      ],
      exports: [
        service,
        runs,
        getLockServicePropertyToken(name),
        getJobRunnerPropertyToken(name),
        election,
        getElectionsPropertyToken(name),
      ],
    };
  }
}

const makeRunner = ({ isTest }: ResolvedModuleOptions, locks: Locks, elections: Elections) =>
  new JobRunner({ locks, elections, isTest });

const makeElections = ({ givenLeaseMs }: ResolvedModuleOptions, locks: Locks) =>
  new Elections(locks, { defaultLeaseMs: givenLeaseMs });

function makeLocks({ backend, namespace, instance, defaults }: ResolvedModuleOptions): Locks {
  const listeners = createLogListeners(new Logger('DistributedLockModule'), backend.clock ?? systemClock);
  return new Locks({
    backend,
    namespace,
    instance,
    defaults,
    events: new Events({ namespace, instance }, listeners),
  });
}
