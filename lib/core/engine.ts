import type { LockBackend } from './backend.js';
import { BackendUse } from './backend-use.js';
import { type Clock, systemClock } from './clock.js';
import type { Events } from './events.js';
import { JobLocks } from './job-locks.js';
import { LeaderLocks } from './leader-locks.js';
import { Acquirer } from './leases/acquirer.js';
import { HeldLocks } from './leases/held-locks.js';
import { Releaser } from './leases/releaser.js';
import { LockAdmin } from './lock-admin.js';
import { LockOrder, type LockOrderMode } from './lock-order.js';
import type { ResolvedLockOptions } from './options.js';
import { Batcher } from './requests/batcher.js';
import { Shutdown } from './shutdown.js';
import { StoreHealth } from './store-health.js';
import { TimerWheel } from './timer-wheel.js';
import { allowManyListeners } from './waiting/wait-controller.js';
import { WaitQueues } from './waiting/wait-queues.js';

export interface EngineOptions {
  readonly backend: LockBackend;
  readonly namespace: string;
  /** The name of this process, as others see it in the store, in events and in the history. */
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  readonly events: Events;
  /** @default 'off' */
  readonly lockOrder?: LockOrderMode;
}

/** The parts of the lock engine that `Locks` uses. */
export interface Engine {
  readonly clock: Clock;
  readonly heldLocks: HeldLocks;
  readonly waitQueues: WaitQueues;
  readonly lockAdmin: LockAdmin;
  readonly jobs: JobLocks;
  readonly leaders: LeaderLocks;
  readonly health: StoreHealth;
  /** `undefined` if it is off. */
  readonly lockOrder: LockOrder | undefined;
  readonly shutdown: Shutdown;
  /** Aborted when the shutdown begins. */
  readonly stopController: AbortController;
}

/** Creates the parts of the lock engine and connects them. `locks` stands for it in lock contexts. */
export function createEngine(options: EngineOptions, locks: object): Engine {
  const { backend, namespace, events, instance, lockOrder: mode = 'off' } = options;
  const clock = backend.clock ?? systemClock;
  const timerWheel = new TimerWheel(clock);
  const backendUse = new BackendUse(backend);
  const batcher = new Batcher({ backend, backendUse, clock, timerWheel });
  const releaser = new Releaser({ batcher, clock, timerWheel });
  const inspect = (storeKey: string, timeoutMs: number) => backend.inspect(storeKey, timeoutMs);
  const heldLocks = new HeldLocks({
    clock,
    timerWheel,
    events,
    batcher,
    releaser,
    leaseLimits: backend,
    inspect,
  });
  const acquirer = new Acquirer({ clock, events, batcher, releaser });
  const waitQueues = new WaitQueues({
    ...{ clock, events, acquirer, releaser, heldLocks, instance },
    timerWheel: new TimerWheel(clock, { awaited: true }),
  });
  const stopController = new AbortController();
  // Each sleeping job adds a listener.
  allowManyListeners(stopController.signal);
  const { signal } = stopController;
  const lockAdmin = new LockAdmin({ backend, backendUse, clock, waitQueues, stopping: signal });
  const shared = { clock, acquirer, heldLocks, lockAdmin };
  const jobs = new JobLocks({ ...options, ...shared, locks, stopping: signal });
  const leaders = new LeaderLocks({ namespace, lockAdmin, waitQueues, stopController, locks });
  const health = new StoreHealth({ backend, namespace, stopping: signal });
  const lockOrder = mode === 'off' ? undefined : new LockOrder({ mode, events, locks });
  const shutdown = new Shutdown({
    ...{ backendUse, clock, events, timerWheel, batcher, releaser },
    ...{ heldLocks, acquirer, waitQueues, jobs, stopController },
    stopListening: listenTo(backend, { events, waitQueues, health }),
  });
  return {
    clock,
    heldLocks,
    waitQueues,
    lockAdmin,
    jobs,
    leaders,
    health,
    lockOrder,
    shutdown,
    stopController,
  };
}

/** Subscribes to the notices of the backend. Returns the functions that unsubscribe. */
const listenTo = (
  backend: LockBackend,
  { events, waitQueues, health }: Pick<Engine, 'waitQueues' | 'health'> & { readonly events: Events },
) => [
  backend.onReleased?.((notice) => waitQueues.onReleaseNotice(notice)),
  backend.onServerStatus?.((serverStatus) => {
    health.onServerStatus(serverStatus);
    const { fault, ...status } = serverStatus;
    if (fault === undefined) events.emit('server-back', status);
    else events.emit('server-away', { ...status, fault });
  }),
];
