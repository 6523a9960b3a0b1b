import { type DynamicModule, Module } from '@nestjs/common';
import { MemoryBackend } from '../backends/memory/memory-backend.js';
import type { Clock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import {
  type DistributedLockModuleOptions,
  checkModuleIdentity,
  resolveModuleOptions,
} from '../distributed-lock.options.js';
import { LockCoreModule } from '../module/lock-core.module.js';
import { LockLifecycle } from '../module/lock.lifecycle.js';
import {
  RESOLVED_OPTIONS,
  MODULE_OVERRIDE,
  type ModuleOverride,
  createModuleOverride,
} from '../module/module-override.js';
import { LockControl } from './lock-control.js';
import { SwitchableBackend } from './switchable-backend.js';

/** Shutdown does not wait for work under locks, unless `shutdown` says so. */
export interface LockTestingModuleOptions extends Omit<DistributedLockModuleOptions, 'backend'> {
  /**
   * Turn time by hand with a `SettableClock`.
   *
   * @default the clock of the machine
   */
  clock?: Clock;
}

const HAS_OPTIONS = Symbol('LockTestingModule options');

/** Or the class alone, given to `useModule()`, would leave the real store in place. */
function throwWithoutForRoot(): never {
  throw new LockConfigError('Expected LockTestingModule.forRoot(), got the class alone. Add .forRoot().');
}

/**
 * Takes the place of `DistributedLockModule` in tests of your own services: real locks without a store, and a
 * {@link LockControl} to take keys, to make locks lost, to make the store unreachable and to fire jobs.
 *
 * Import it instead of `DistributedLockModule`, or replace that one in a whole application:
 * `overrideModule(DistributedLockModule).useModule(LockTestingModule.forRoot())`. Its options then count for all lock
 * modules of the application, and the factories of `forRootAsync` are not called. Modules with names share one store and one
 * namespace: the same key is the same lock in all of them.
 *
 * A job runs whenever its method is called, and needs no `ScheduleModule`.
 */
@Module({ providers: [{ provide: HAS_OPTIONS, useFactory: throwWithoutForRoot }] })
export class LockTestingModule {
  static forRoot({ clock, isGlobal = true, name, ...options }: LockTestingModuleOptions = {}): DynamicModule {
    // A test that failed with a lock in its hand should end, also when time stands still.
    const shutdown = { drainMs: 0, abortGraceMs: 0, ...options.shutdown };
    checkModuleIdentity({ name, isGlobal });
    const store = new MemoryBackend(clock && { clock });
    const backend = new SwitchableBackend(store);
    const resolved = resolveModuleOptions({ ...options, shutdown, backend });
    const { namespace } = resolved;
    const core = LockCoreModule.register(name, {
      providers: [{ provide: RESOLVED_OPTIONS, useFactory: () => ({ ...resolved, isTest: true }) }],
    });
    const providers = core.providers ?? [];
    const shared = providers.filter(
      (provider) => !('provide' in provider) || provider.provide !== LockLifecycle,
    );
    core.providers = [
      ...providers,
      createModuleOverride(name, shared),
      {
        provide: LockControl,
        useFactory: ({ instances, otherModuleInstances }: ModuleOverride) =>
          new LockControl({
            backend,
            store,
            namespace,
            listInstances: () => [...instances.values(), ...otherModuleInstances],
          }),
        inject: [MODULE_OVERRIDE],
      },
    ];
    core.exports = [...(core.exports ?? []), MODULE_OVERRIDE, LockControl];
    return {
      module: LockTestingModule,
      global: isGlobal,
      imports: [core],
      providers: [{ provide: HAS_OPTIONS, useValue: true }],
      exports: [core],
    };
  }
}
