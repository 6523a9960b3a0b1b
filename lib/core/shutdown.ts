import type { BackendUse } from './backend-use.js';
import type { Clock } from './clock.js';
import { LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { JobLocks } from './job-locks.js';
import type { Acquirer } from './leases/acquirer.js';
import type { HeldLocks } from './leases/held-locks.js';
import type { InternalLock } from './leases/internal-lock.js';
import type { Releaser } from './leases/releaser.js';
import type { ShutdownOptions } from './options.js';
import { setImmediate } from './real-timers.js';
import type { Batcher } from './requests/batcher.js';
import { withTimeout } from './requests/store-timeout.js';
import type { TimerWheel } from './timer-wheel.js';
import type { WaitQueues } from './waiting/wait-queues.js';

/** How long shutdown waits for open acquisitions, releases and history entries. */
const MAX_FINAL_REQUESTS_MS = 1_000;

interface ShutdownParts {
  readonly backendUse: BackendUse;
  readonly clock: Clock;
  readonly events: Events;
  readonly timerWheel: TimerWheel;
  readonly batcher: Batcher;
  readonly releaser: Releaser;
  readonly heldLocks: HeldLocks;
  readonly acquirer: Acquirer;
  readonly waitQueues: WaitQueues;
  readonly jobs: JobLocks;
  /** Aborted when the shutdown begins. */
  readonly stopController: AbortController;
  /** End the subscriptions to the backend. */
  readonly stopListening: readonly ((() => void) | undefined)[];
}

/** Ends the locks of a process: rejects waiters, waits for the work under locks, and ends the use of the backend. */
export class Shutdown {
  readonly #parts: ShutdownParts;
  /** Resolves when all waiters have been rejected after the start of the shutdown. */
  #waitersRejected = Promise.resolve();
  #draining: Promise<readonly string[]> | undefined;
  #closing: Promise<void> | undefined;
  /** How long the backend stays open for work that closed the application itself. */
  #closingWorkMs: number | undefined;

  constructor(parts: ShutdownParts) {
    this.#parts = parts;
  }

  /** Rejects waiters and new acquisitions. Held locks stay held and are renewed. */
  begin(): void {
    const { stopController, events, waitQueues } = this.#parts;
    if (stopController.signal.aborted) return;
    events.emit('shutdown', { phase: 'draining', left: 0 });
    const reason = new LockShutdownError('The application is shutting down: no lock is granted any more.');
    stopController.abort(reason);
    // Acquisitions of this turn of the event loop may still be granted.
    this.#waitersRejected = new Promise((resolve) =>
      setImmediate(() => {
        waitQueues.rejectAll(reason);
        resolve();
      }),
    );
  }

  /**
   * Waits for the work under locks to end. Returns the keys of the locks that were not released. Work that closes the
   * application awaits this: waiting for its own locks would be a deadlock.
   */
  drain(
    limits: Required<ShutdownOptions>,
    closingLocks: readonly InternalLock[],
  ): Promise<readonly string[]> {
    this.#draining ??= this.#drain(limits, closingLocks);
    return this.#draining;
  }

  /** Ends all requests, and closes the backend unless another module uses it. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.begin();
    const { waitQueues, stopController } = this.#parts;
    waitQueues.rejectAll(stopController.signal.reason);
    if (this.#closingWorkMs === undefined) return this.#end();
    // The work that closed the application awaits this call, so it ends later. No caller is left for an error of it.
    void this.#endAfterWork(this.#closingWorkMs).catch(() => undefined);
  }

  async #drain(
    { drainMs, abortGraceMs }: Required<ShutdownOptions>,
    closingLocks: readonly InternalLock[],
  ): Promise<readonly string[]> {
    const { clock, events, acquirer, heldLocks, releaser, jobs } = this.#parts;
    this.begin();
    const startedAtMs = clock.monotonicMs();
    // Otherwise the backend could be closed while waiters still have a place in the store's queue.
    await this.#waitersRejected;
    // Open acquisitions may still be granted. The grant is then released, or its work drains with the rest.
    const acquisitions = Promise.all([acquirer.whenSettled(), jobs.whenClaimed()]);
    await withTimeout(clock, Math.max(drainMs, MAX_FINAL_REQUESTS_MS), acquisitions, { awaited: true });
    const leftMs = Math.max(startedAtMs + drainMs - clock.monotonicMs(), 0);
    const left = await heldLocks.drain({ drainMs: leftMs, abortGraceMs }, closingLocks);
    if (closingLocks.length > 0) this.#closingWorkMs = Math.max(abortGraceMs, MAX_FINAL_REQUESTS_MS);
    const finalRequests = Promise.all([releaser.whenSettled(), jobs.whenRecorded()]);
    await withTimeout(clock, MAX_FINAL_REQUESTS_MS, finalRequests, { awaited: true });
    events.emit('shutdown', { phase: 'done', left: left.length });
    return left;
  }

  async #endAfterWork(timeoutMs: number): Promise<void> {
    const { clock, heldLocks, jobs } = this.#parts;
    await heldLocks.waitForClosingWork(timeoutMs);
    await withTimeout(clock, timeoutMs, jobs.whenRecorded(), { awaited: true });
    await this.#end();
  }

  async #end(): Promise<void> {
    const { backendUse, batcher, releaser, acquirer, heldLocks, jobs, timerWheel } = this.#parts;
    jobs.close();
    for (const stop of this.#parts.stopListening) stop?.();
    const waitingRequestsSent = batcher.close();
    releaser.stop();
    acquirer.close();
    heldLocks.close();
    timerWheel.cancelUnusedTimer();
    await waitingRequestsSent;
    await backendUse.end();
  }
}
