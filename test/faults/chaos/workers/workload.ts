import { setTimeout as sleep } from 'node:timers/promises';
import type { Lock, LockService } from '../../../../lib/index.js';
import { LockLostError, LockShutdownError, LockUnavailableError } from '../../../../lib/index.js';
import { machineMs } from '../../../support/machine-clock.js';
import type { Random } from '../../../support/random.js';
import { type Task, leasesOf, ownLeaseMs } from './worker-messages.js';
import { CALLER_GAVE_UP, type Recorder } from './recorder.js';

interface WorkloadOptions {
  readonly task: Task;
  readonly locks: LockService;
  readonly recorder: Recorder;
  readonly random: Random;
  /** Outlives all wishes, so that it shows which of them leave a listener behind. */
  readonly sharedSignal: AbortSignal;
}

/** Keys are left for new ones after a while, so that the history of each stays short. */
const KEY_LASTS_MS = 10_000;
const WAIT_MS = 10_000;

/** The wishes of one process: everything that can be done with a lock, by chance. */
export class Workload {
  readonly #parts: WorkloadOptions;
  readonly #operations: readonly (() => Promise<void>)[];
  #ownKeys = 0;

  constructor(parts: WorkloadOptions) {
    this.#parts = parts;
    const repeated = <T>(times: number, operation: T): T[] => Array<T>(times).fill(operation);
    this.#operations = [
      ...repeated(12, () => this.#runWithLock()),
      ...repeated(2, () => this.#workLong()),
      ...repeated(3, () => this.#letLeaseExpire()),
      ...repeated(2, () => this.#tryOnce()),
      ...repeated(2, () => this.#abortWait()),
      ...repeated(5, () => this.#lockOwnKey()),
    ];
  }

  async runUntil(stopSignal: AbortSignal): Promise<void> {
    const { random } = this.#parts;
    while (!stopSignal.aborted) {
      await random.pick(this.#operations)();
      await sleep(random.between(0, 20));
    }
  }

  /** `withLock`, for some ms. */
  async #runWithLock(): Promise<void> {
    const { locks, recorder, random } = this.#parts;
    const [key, options] = [this.#sharedKey(), this.#acquireOptions()];
    const op = recorder.recordRequest(key, options);
    const outcome = { isGranted: false };
    try {
      await locks.withLock(key, options, async (lock) => {
        outcome.isGranted = true;
        recorder.recordGrant(op, lock);
        await recorder.addItem({ op, lock }, random.between(0, 15));
        recorder.recordReleasing({ op, lock });
      });
    } catch (error) {
      if (!outcome.isGranted) recorder.recordError(op, error);
      else if (!(error instanceof LockLostError)) throw error;
    }
  }

  /** Work that takes up to three leases, and prolongs the last one. */
  async #workLong(): Promise<void> {
    const { random, recorder } = this.#parts;
    const options = { ...this.#acquireOptions(), leaseMs: this.#leasesMs[0] };
    await this.#hold(this.#sharedKey(), options, async (held) => {
      await recorder.addItem(held, random.between(300, 3_000));
      if (random.chance(0.5)) {
        const leaseMs = random.pick(this.#leasesMs);
        const isExtended = await held.lock.extend(leaseMs).then(() => true, ignoreExpectedError);
        if (isExtended) recorder.recordRenewal(held, leaseMs);
      }
      await recorder.addItem(held, random.between(0, 200));
    });
  }

  /** Is not renewed, works as long as it may, and a little longer. */
  async #letLeaseExpire(): Promise<void> {
    const { random, recorder } = this.#parts;
    const options = { ...this.#acquireOptions(), leaseMs: this.#leasesMs[0], renew: false };
    await this.#hold(this.#sharedKey(), options, async (held) => {
      await recorder.addItem(held, random.between(0, 100));
      while (recorder.recordValidity(held)) await sleep(random.between(5, 40));
      await recorder.addItem(held, random.between(0, 30));
    });
  }

  async #tryOnce(): Promise<void> {
    const { locks, recorder, random } = this.#parts;
    const [key, options] = [this.#sharedKey(), { ...this.#acquireOptions(), waitMs: 0 }];
    const acquire = () => locks.tryAcquire(key, options);
    await this.#hold(key, options, (held) => recorder.addItem(held, random.between(0, 20)), acquire);
  }

  /** Has little time, or goes away while it waits. */
  async #abortWait(): Promise<void> {
    const { locks, recorder, random, sharedSignal } = this.#parts;
    const [key, options] = [this.#sharedKey(), { ...this.#acquireOptions(), waitMs: random.between(0, 600) }];
    const leaving = new AbortController();
    const timer = setTimeout(() => leaving.abort(CALLER_GAVE_UP), random.between(0, 1_200));
    // One signal for all wishes, and one that ends this one.
    const signal = random.chance(0.5) ? leaving.signal : sharedSignal;
    const acquire = () => locks.acquire(key, { ...options, signal });
    await this.#hold(key, options, (held) => recorder.addItem(held, random.between(0, 20)), acquire);
    clearTimeout(timer);
  }

  /** A key that nobody else wants, with a long lease: if it is not given back, it shows in the end. */
  async #lockOwnKey(): Promise<void> {
    const { locks, random, task } = this.#parts;
    this.#ownKeys += 1;
    const key = `own:${task.name}:${this.#ownKeys}`;
    const options = { leaseMs: ownLeaseMs(task.store), waitMs: 0 };
    await this.#hold(
      key,
      options,
      () => sleep(random.between(0, 20)),
      () => locks.tryAcquire(key, options),
    );
  }

  async #hold(
    key: string,
    options: { readonly leaseMs: number; readonly waitMs: number; readonly renew?: boolean },
    work: (held: { readonly op: string; readonly lock: Lock }) => Promise<void>,
    acquire: () => Promise<Lock | null> = () => this.#parts.locks.acquire(key, options),
  ): Promise<void> {
    const { recorder } = this.#parts;
    const op = recorder.recordRequest(key, options);
    let lock: Lock | null;
    try {
      lock = await acquire();
    } catch (error) {
      recorder.recordError(op, error);
      return;
    }
    if (!lock) {
      recorder.recordTaken(op);
      return;
    }
    const held = { op, lock };
    recorder.recordGrant(op, lock);
    await work(held);
    recorder.recordReleasing(held);
    const wasOurs = await lock.release().catch(ignoreExpectedError);
    recorder.recordRelease(held, wasOurs === undefined ? 'unknown' : wasOurs ? 'ours' : 'gone');
  }

  get #leasesMs() {
    return leasesOf(this.#parts.task.store);
  }

  #sharedKey(): string {
    const { random, task } = this.#parts;
    return `key${random.whole(1, task.keys)}:${Math.floor(machineMs() / KEY_LASTS_MS)}`;
  }

  #acquireOptions() {
    return { leaseMs: this.#parts.random.pick(this.#leasesMs), waitMs: WAIT_MS };
  }
}

/** The store could not be asked, or the lock is lost: that may happen. Anything else may not. */
function ignoreExpectedError(error: unknown): undefined {
  if (error instanceof LockUnavailableError || error instanceof LockLostError) return undefined;
  if (error instanceof LockShutdownError) return undefined;
  throw error;
}
