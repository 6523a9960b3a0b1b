import { type DynamicModule, Module } from '@nestjs/common';
import { MemoryBackend } from '../backends/memory/memory-backend.js';
import { collectClockErrors } from '../backends/memory/memory-options.js';
import type { Clock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import { OptionErrors } from '../core/option-errors.js';
import {
  type DistributedLockModuleOptions,
  OPTION_NAMES,
  checkModuleIdentity,
  resolveModuleOptions,
} from '../distributed-lock.options.js';
import { LockCoreModule } from '../module/lock-core.module.js';
import { LockLifecycle } from '../module/lock-lifecycle.js';
import {
  MODULE_OVERRIDE,
  type ModuleOverride,
  RESOLVED_OPTIONS,
  createModuleOverride,
} from '../module/module-override.js';
import { LockControl } from './lock-control.js';
import { SwitchableBackend } from './switchable-backend.js';

/** The options of `DistributedLockModule` without a backend. Shutdown does not wait for work under locks unless `shutdown` is set. */
export interface LockTestingModuleOptions extends Omit<DistributedLockModuleOptions, 'backend'> {
  /**
   * The clock of all locks. With a `SettableClock`, the test decides when time passes.
   *
   * @default the system clock
   */
  clock?: Clock;
}

function checkOptions(given: LockTestingModuleOptions): void {
  const errors = new OptionErrors();
  const inherited = OPTION_NAMES.filter((name) => name !== 'backend');
  errors.object('options', given, ['clock', 'name', 'isGlobal', ...inherited]);
  collectClockErrors(errors, 'options.clock', given.clock);
  errors.throwIfAny('Wrong options of LockTestingModule.forRoot()');
}

const HAS_OPTIONS = Symbol('LockTestingModule options');

/** Without this check, `useModule(LockTestingModule)` without `.forRoot()` would leave the real store in place. */
function throwWithoutForRoot(): never {
  throw new LockConfigError('Expected LockTestingModule.forRoot(), got the class alone. Add .forRoot().');
}

/**
 * Replaces `DistributedLockModule` in tests of your own services. It provides real locks without a store, and a {@link
 * LockControl} to acquire keys, to make locks lost, to disconnect the store and to fire jobs.
 *
 * Import it instead of `DistributedLockModule`, or replace that module in a whole application:
 * `overrideModule(DistributedLockModule).useModule(LockTestingModule.forRoot())`. Its options then apply to all lock
 * modules of the application, and the factories of `forRootAsync` are not called. Named modules then share one store
 * and one namespace: the same key is the same lock in all of them.
 *
 * A job runs whenever its method is called, and needs no `ScheduleModule`.
 */
@Module({ providers: [{ provide: HAS_OPTIONS, useFactory: throwWithoutForRoot }] })
export class LockTestingModule {
  static forRoot(given: LockTestingModuleOptions = {}): DynamicModule {
    checkOptions(given);
    const { clock, isGlobal = true, name, ...options } = given;
    // A test that failed while it held a lock must end, even if its clock stands still.
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
    const replacements = providers.filter(
      (provider) => !('provide' in provider) || provider.provide !== LockLifecycle,
    );
    core.providers = [
      ...providers,
      createModuleOverride(name, replacements),
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
