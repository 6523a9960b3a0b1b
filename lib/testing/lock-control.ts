import { randomUUID } from 'node:crypto';
import type { Claim, LockBackend } from '../core/backend.js';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { checkKey, lockStoreKey } from '../core/key.js';
import { Locks } from '../core/locks.js';
import { formatValue } from '../core/format.js';
import { JobRunner } from '../schedule/job-runner.js';
import type { SwitchableBackend } from './switchable-backend.js';

const TIMEOUT_MS = 1_000;
const LEASE_MS = 2 ** 31 - 1;

interface ControlParts {
  readonly backend: SwitchableBackend;
  /** The store behind the plug. */
  readonly store: LockBackend;
  readonly namespace: string;
  /** What the modules of the application consist of. */
  readonly listInstances: () => readonly unknown[];
}

export interface FireOptions {
  /**
   * The tick that the job receives. A tick that you name runs once, as in production.
   *
   * @default the newest planned one, for as many runs as you like
   */
  readonly tick?: Date;
}

/** What a test does to the locks of the services under test. Injectable, where `LockTestingModule` is imported. */
@SharedAcrossCopies('LockControl')
export class LockControl {
  readonly #parts: ControlParts;
  readonly #takenClaims = new Map<string, Claim>();

  constructor(parts: ControlParts) {
    this.#parts = parts;
  }

  /**
   * Somebody else holds the key from now on, until {@link free}.
   *
   * @throws Error if it is held already
   */
  async take(key: string): Promise<void> {
    const claim = { key: this.#storeKey(key), holder: randomUUID() };
    const request = { ...claim, leaseMs: LEASE_MS, instance: 'LockControl' };
    const { acquire } = await this.#parts.store.execute({ acquire: [request] }, TIMEOUT_MS);
    if (acquire[0]?.kind !== 'granted')
      throw new Error(`Expected "${key}" to be free, but it is held. Call lose() first.`);
    this.#takenClaims.set(key, claim);
  }

  /** Gives back what {@link take} took. */
  async free(key: string): Promise<void> {
    const claim = this.#takenClaims.get(key);
    if (!claim) throw new Error(`Expected "${key}" to have been taken with take(), but it was not.`);
    this.#takenClaims.delete(key);
    await this.#parts.store.execute({ release: [claim] }, TIMEOUT_MS);
  }

  /**
   * The service that holds the key loses it, as after a pause longer than the lease: when this settles its signal has
   * aborted with `LockLostError`.
   *
   * @throws Error if nobody holds it
   */
  async lose(key: string): Promise<void> {
    const { store, listInstances } = this.#parts;
    const storeKey = this.#storeKey(key);
    const record = await store.inspect(storeKey, TIMEOUT_MS);
    if (!record) throw new Error(`Expected "${key}" to be held, but it is free.`);
    await store.forceRelease(storeKey, record.fencingToken, TIMEOUT_MS);
    const lockInstances = listInstances().filter((part) => part instanceof Locks);
    await Promise.all(lockInstances.map((locks) => locks.confirmHeld(key)));
  }

  /**
   * Runs the job with this key, as its timer would: through all decorators of the method, whatever the time, the leader
   * and `jitterMs`. Returns what the job returned; `undefined` if it was skipped, because a run of it is on, the store is
   * disconnected or the tick has run.
   *
   * @throws Error if there is no such job, and what the job throws
   */
  async fire(key: string, { tick }: FireOptions = {}): Promise<unknown> {
    if (tick !== undefined && !(tick instanceof Date && Number.isFinite(tick.getTime())))
      throw new Error(`Expected options.tick to be a valid Date, got ${formatValue(tick)}.`);
    const runners = this.#parts.listInstances().filter((part) => part instanceof JobRunner);
    const runner = runners.find((each) => each.findJob(key));
    if (runner) return await runner.runNow(key, tick?.getTime());
    const keys = runners.flatMap((each) => each.keys).join(', ') || 'none';
    throw new Error(
      `Expected the key of a job, got ${formatValue(key)}. The jobs of this application: ${keys}. They are found by ` +
        `\`await app.init()\`.`,
    );
  }

  /** The store cannot be reached from now on: `LockUnavailableError`, and renewals that fail. */
  disconnect(): void {
    this.#parts.backend.isReachable = false;
  }

  reconnect(): void {
    this.#parts.backend.isReachable = true;
  }

  #storeKey(key: string): string {
    checkKey(key);
    return lockStoreKey(this.#parts.namespace, key);
  }
}
