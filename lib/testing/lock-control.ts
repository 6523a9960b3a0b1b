import { randomUUID } from 'node:crypto';
import type { AcquisitionId, LockBackend } from '../core/backend.js';
import { formatValue } from '../core/format.js';
import { createHolder } from '../core/holder.js';
import { checkKey } from '../core/key.js';
import {
  MAX_PERMITS,
  MAX_READING_PROCESSES,
  lockStoreKey,
  permitStoreKey,
  readWriteStoreKey,
} from '../core/store-key.js';
import { type LockOrderEdge, MAX_EDGES } from '../core/lock-order-graph.js';
import { describeInversionWithStacks } from '../core/lock-order-text.js';
import type { LockOrder } from '../core/lock-order.js';
import { Locks } from '../core/locks.js';
import { OptionErrors } from '../core/option-errors.js';
import { type LockMode, collectKindErrors } from '../core/options.js';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { JobRunner } from '../schedule/job-runner.js';
import type { SwitchableBackend } from './switchable-backend.js';

const TIMEOUT_MS = 1_000;
const LEASE_MS = 2 ** 31 - 1;

interface ControlParts {
  readonly backend: SwitchableBackend;
  /** The store itself, which stays reachable after `disconnect()`. */
  readonly store: LockBackend;
  readonly namespace: string;
  /** The services of all lock modules of the application. */
  readonly listInstances: () => readonly unknown[];
}

export interface FireOptions {
  /**
   * The tick that the job receives. As in production, the same tick runs only once.
   *
   * @default the newest planned tick, which may run any number of times
   */
  readonly tick?: Date;
}

export interface TakeOptions {
  readonly permits?: number;
  readonly mode?: LockMode;
}

/** Controls the locks of the services under test. Inject it where `LockTestingModule` is imported. */
@SharedAcrossCopies('LockControl')
export class LockControl {
  readonly #parts: ControlParts;
  readonly #taken = new Map<string, readonly AcquisitionId[]>();

  constructor(parts: ControlParts) {
    this.#parts = parts;
  }

  /**
   * Acquires the key for another holder, until {@link free} is called. With `permits`, acquires all of them. With `mode`,
   * acquires a read lock or the write lock.
   *
   * @throws Error if the key is held already
   * @throws LockConfigError if an option is wrong
   */
  async take(key: string, options: TakeOptions = {}): Promise<void> {
    checkTakeOptions(options);
    const { permits, mode } = options;
    const storeKeys = [this.#storeKey(key)];
    if (permits !== undefined) storeKeys.splice(0, 1, ...this.#permitKeys(key).slice(0, permits));
    else if (mode === 'write') storeKeys.splice(0, 1, ...this.#slotKeys(key));
    // The last slot, because this process may hold others.
    else if (mode === 'read') storeKeys.splice(0, 1, ...this.#slotKeys(key).slice(-1));
    const session = randomUUID();
    const acquisitions = storeKeys.map((storeKey, index) => ({
      key: storeKey,
      holder: createHolder(session, index, mode === 'write' && index > 0),
    }));
    const requests = acquisitions.map((each) => ({ ...each, leaseMs: LEASE_MS, instance: 'LockControl' }));
    const { acquire } = await this.#parts.store.execute({ acquire: requests }, TIMEOUT_MS);
    if (acquire.some(({ kind }) => kind !== 'granted')) {
      await this.#parts.store.execute({ release: acquisitions }, TIMEOUT_MS);
      const remedy = this.#taken.has(key) ? 'it is held by take(). Call free()' : 'it is held. Call lose()';
      throw new Error(`Expected "${key}" to be free, but ${remedy} first.`);
    }
    this.#taken.set(key, acquisitions);
  }

  /**
   * Releases a key that {@link take} has acquired.
   *
   * @throws Error if it was not acquired by `take`
   */
  async free(key: string): Promise<void> {
    const acquisitions = this.#taken.get(key);
    if (!acquisitions) throw new Error(`Expected "${key}" to have been taken with take(), but it was not.`);
    this.#taken.delete(key);
    await this.#parts.store.execute({ release: acquisitions }, TIMEOUT_MS);
  }

  /**
   * Makes the holder lose the key, as if it had stalled for longer than its lease. When the promise settles, the signal
   * of the lock has aborted with `LockLostError`. All holders of a key with permits or a mode lose it.
   *
   * @throws Error if the key is free
   */
  async lose(key: string): Promise<void> {
    const { store, listInstances } = this.#parts;
    let isHeld = false;
    for (const storeKey of [this.#storeKey(key), ...this.#permitKeys(key), ...this.#slotKeys(key)]) {
      const record = await store.inspect(storeKey, TIMEOUT_MS);
      if (!record) continue;
      isHeld = true;
      await store.forceRelease(storeKey, record.fencingToken, TIMEOUT_MS);
    }
    if (!isHeld) throw new Error(`Expected "${key}" to be held, but it is free.`);
    const lockInstances = listInstances().filter((part) => part instanceof Locks);
    await Promise.all(lockInstances.map((locks) => locks.confirmHeld(key)));
  }

  /**
   * Runs the job with this key as its timer would, through all decorators of the method. Ignores the time, the leader and
   * `jitterMs`. Returns what the job returns; `undefined` if it was skipped because a run of it is in progress, it is
   * paused, the store is disconnected or the tick has run already.
   *
   * @throws Error if there is no job with this key
   * @throws what the job throws
   */
  async fire(key: string, { tick }: FireOptions = {}): Promise<unknown> {
    if (tick !== undefined && !(tick instanceof Date && Number.isFinite(tick.getTime())))
      throw new Error(`Expected options.tick to be a valid Date, got ${formatValue(tick)}.`);
    const runners = this.#parts.listInstances().filter((part) => part instanceof JobRunner);
    for (const runner of runners) {
      const job = runner.jobs.find(key);
      if (job) return await runner.testRuns.run(job, tick?.getTime());
    }
    const keys = runners.flatMap((each) => each.jobs.keys).join(', ') || 'none';
    throw new Error(
      `Expected the key of a job, got ${formatValue(key)}. The jobs of this application: ${keys}. Jobs are ` +
        `registered by \`await app.init()\`.`,
    );
  }

  /**
   * Returns in which orders locks were acquired one inside the other since the application was created, the oldest first.
   * Each pair of templates is listed once, with the keys and the stack of its first call.
   *
   * @throws Error if the option `lockOrder` is `'off'`
   */
  lockOrder(): readonly LockOrderEdge[] {
    return this.#listLockOrders().flatMap(({ edges }) => edges);
  }

  /**
   * Checks that no locks were acquired in opposite orders since the application was created.
   *
   * @throws Error that names both orders, with the stacks of their calls; also if there were too many pairs of templates to
   *   record all of them, or if the option `lockOrder` is `'off'`
   */
  expectNoInversion(): void {
    const inversions = this.lockOrder().filter(({ opposite }) => opposite);
    if (inversions.length > 0) throw new Error(inversions.map(describeInversionWithStacks).join('\n\n'));
    if (this.#listLockOrders().every(({ isFull }) => !isFull)) return;
    throw new Error(
      `Expected fewer than ${MAX_EDGES} pairs of templates. Further ones are not checked. Set a label where keys contain names.`,
    );
  }

  /** Makes the store unreachable: requests throw `LockUnavailableError`, and renewals fail. */
  disconnect(): void {
    this.#parts.backend.isReachable = false;
  }

  /** Makes the store reachable again. */
  reconnect(): void {
    this.#parts.backend.isReachable = true;
  }

  #listLockOrders(): readonly LockOrder[] {
    const lockInstances = this.#parts.listInstances().filter((part) => part instanceof Locks);
    const orders = lockInstances.flatMap(({ lockOrder }) => lockOrder ?? []);
    if (orders.length > 0) return orders;
    throw new Error(
      `Expected the option lockOrder to be 'warn' or 'throw', got 'off'. Set it in LockTestingModule.forRoot().`,
    );
  }

  #permitKeys(key: string): string[] {
    const { namespace } = this.#parts;
    return Array.from({ length: MAX_PERMITS }, (_, permit) => permitStoreKey(namespace, key, permit));
  }

  /** The slot of the writers, and then those of the readers. */
  #slotKeys(key: string): string[] {
    const { namespace } = this.#parts;
    return Array.from({ length: MAX_READING_PROCESSES + 1 }, (_, slot) =>
      readWriteStoreKey(namespace, key, slot),
    );
  }

  #storeKey(key: string): string {
    checkKey(key);
    return lockStoreKey(this.#parts.namespace, key);
  }
}

function checkTakeOptions(options: TakeOptions): void {
  const errors = new OptionErrors();
  collectKindErrors(errors, 'options', errors.object('options', options, ['permits', 'mode']));
  errors.throwIfAny('Wrong options of take()');
}
