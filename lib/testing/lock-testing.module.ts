import { type DynamicModule, Module } from '@nestjs/common';
import { MemoryBackend } from '../backends/memory/memory-backend.js';
import type { Clock } from '../core/clock.js';
import { Locks } from '../core/locks.js';
import {
  type DistributedLockModuleOptions,
  checkModuleIdentity,
  resolveModuleOptions,
} from '../distributed-lock.options.js';
import { LockCoreModule, RESOLVED_OPTIONS } from '../lock-core.module.js';
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

/**
 * Takes the place of `DistributedLockModule` in tests of your own services: real locks without a store, and a
 * {@link LockControl} to take keys, to make locks lost and to make the store unreachable.
 */
@Module({})
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
      providers: [
        { provide: RESOLVED_OPTIONS, useValue: resolved },
        {
          provide: LockControl,
          useFactory: (locks: Locks) => new LockControl({ backend, store, namespace, locks }),
          inject: [Locks],
        },
      ],
    });
    core.exports = [...(core.exports ?? []), LockControl];
    return { module: LockTestingModule, global: isGlobal, imports: [core], exports: [core] };
  }
}
