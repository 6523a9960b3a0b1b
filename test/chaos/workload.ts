import { setTimeout as sleep } from 'node:timers/promises';
import type { Lock, LockService } from '../../lib/index.js';
import { LockLostError, LockShutdownError, LockUnavailableError } from '../../lib/index.js';
import { machineMs } from '../machine-ms.js';
import type { Random } from '../random.js';
import { LEASES_MS, type Task, ownLeaseMs } from './task.js';
import { IMPATIENCE, type Witness } from './witness.js';

interface WorkloadParts {
  readonly task: Task;
  readonly locks: LockService;
  readonly witness: Witness;
  readonly random: Random;
  /** Outlives all wishes, so that it shows which of them leave a listener behind. */
  readonly patience: AbortSignal;
}

/** Keys are left for new ones after a while, so that the history of each stays short. */
const KEY_LASTS_MS = 10_000;
const PATIENT_MS = 10_000;

/** The wishes of one process: everything that can be done with a lock, by chance. */
export class Workload {
  readonly #parts: WorkloadParts;
  readonly #wishes: readonly (() => Promise<void>)[];
  #ownKeys = 0;

  constructor(parts: WorkloadParts) {
    this.#parts = parts;
    const often = <T>(times: number, wish: T): T[] => Array<T>(times).fill(wish);
    this.#wishes = [
      ...often(12, () => this.#brief()),
      ...often(2, () => this.#long()),
      ...often(3, () => this.#lapse()),
      ...often(2, () => this.#tryOnce()),
      ...often(2, () => this.#impatient()),
      ...often(5, () => this.#own()),
    ];
  }

  async callUntil(over: AbortSignal): Promise<void> {
    const { random } = this.#parts;
    while (!over.aborted) {
      await random.pick(this.#wishes)();
      await sleep(random.between(0, 20));
    }
  }

  /** `withLock`, for some ms. */
  async #brief(): Promise<void> {
    const { locks, witness, random } = this.#parts;
    const [key, terms] = [this.#sharedKey(), this.#terms()];
    const op = witness.asked(key, terms);
    const outcome = { isGranted: false };
    try {
      await locks.withLock(key, terms, async (lock) => {
        outcome.isGranted = true;
        witness.granted(op, lock);
        await witness.add({ op, lock }, random.between(0, 15));
        witness.releasing({ op, lock });
      });
    } catch (error) {
      if (!outcome.isGranted) witness.refused(op, error);
      else if (!(error instanceof LockLostError)) throw error;
    }
  }

  /** Work that takes up to three leases, and prolongs the last one. */
  async #long(): Promise<void> {
    const { random, witness } = this.#parts;
    const terms = { ...this.#terms(), leaseMs: LEASES_MS[0] };
    await this.#hold(this.#sharedKey(), terms, async (held) => {
      await witness.add(held, random.between(300, 3_000));
      if (random.chance(0.5)) {
        const leaseMs = random.pick(LEASES_MS);
        const isExtended = await held.lock.extend(leaseMs).then(() => true, isKnownDoubt);
        if (isExtended) witness.renewed(held, leaseMs);
      }
      await witness.add(held, random.between(0, 200));
    });
  }

  /** Is not renewed, works as long as it may, and a little longer. */
  async #lapse(): Promise<void> {
    const { random, witness } = this.#parts;
    const terms = { ...this.#terms(), leaseMs: LEASES_MS[0], renew: false };
    await this.#hold(this.#sharedKey(), terms, async (held) => {
      await witness.add(held, random.between(0, 100));
      while (witness.sees(held)) await sleep(random.between(5, 40));
      await witness.add(held, random.between(0, 30));
    });
  }

  async #tryOnce(): Promise<void> {
    const { locks, witness, random } = this.#parts;
    const [key, terms] = [this.#sharedKey(), { ...this.#terms(), waitMs: 0 }];
    const ask = () => locks.tryAcquire(key, terms);
    await this.#hold(key, terms, (held) => witness.add(held, random.between(0, 20)), ask);
  }

  /** Has little time, or goes away while it waits. */
  async #impatient(): Promise<void> {
    const { locks, witness, random, patience } = this.#parts;
    const [key, terms] = [this.#sharedKey(), { ...this.#terms(), waitMs: random.between(0, 600) }];
    const leaving = new AbortController();
    const timer = setTimeout(() => leaving.abort(IMPATIENCE), random.between(0, 1_200));
    // One signal for all wishes, and one that ends this one.
    const signal = random.chance(0.5) ? leaving.signal : patience;
    const ask = () => locks.acquire(key, { ...terms, signal });
    await this.#hold(key, terms, (held) => witness.add(held, random.between(0, 20)), ask);
    clearTimeout(timer);
  }

  /** A key that nobody else wants, with a long lease: if it is not given back, it shows in the end. */
  async #own(): Promise<void> {
    const { locks, random, task } = this.#parts;
    this.#ownKeys += 1;
    const key = `own:${task.name}:${this.#ownKeys}`;
    const terms = { leaseMs: ownLeaseMs(task.store), waitMs: 0 };
    await this.#hold(
      key,
      terms,
      () => sleep(random.between(0, 20)),
      () => locks.tryAcquire(key, terms),
    );
  }

  async #hold(
    key: string,
    terms: { readonly leaseMs: number; readonly waitMs: number; readonly renew?: boolean },
    work: (held: { readonly op: string; readonly lock: Lock }) => Promise<void>,
    ask: () => Promise<Lock | null> = () => this.#parts.locks.acquire(key, terms),
  ): Promise<void> {
    const { witness } = this.#parts;
    const op = witness.asked(key, terms);
    let lock: Lock | null;
    try {
      lock = await ask();
    } catch (error) {
      witness.refused(op, error);
      return;
    }
    if (!lock) {
      witness.taken(op);
      return;
    }
    const held = { op, lock };
    witness.granted(op, lock);
    await work(held);
    witness.releasing(held);
    const wasOurs = await lock.release().catch(isKnownDoubt);
    witness.released(held, wasOurs === undefined ? 'unknown' : wasOurs ? 'ours' : 'gone');
  }

  #sharedKey(): string {
    const { random, task } = this.#parts;
    return `key${random.whole(1, task.keys)}:${Math.floor(machineMs() / KEY_LASTS_MS)}`;
  }

  #terms() {
    return { leaseMs: this.#parts.random.pick(LEASES_MS), waitMs: PATIENT_MS };
  }
}

/** The store could not be asked, or the lock is lost: that may happen. Anything else may not. */
function isKnownDoubt(error: unknown): undefined {
  if (error instanceof LockUnavailableError || error instanceof LockLostError) return undefined;
  if (error instanceof LockShutdownError) return undefined;
  throw error;
}
