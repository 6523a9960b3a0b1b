import type { ReleaseResult, RenewResult } from '../backend-results.js';
import type { LockRecord } from '../lock-record.js';
import type { Clock } from '../clock.js';
import { lostDuringWorkError } from '../error-factories.js';
import { LockShutdownError } from '../errors.js';
import type { Events } from '../events.js';
import { LinkedList } from '../linked-list.js';
import type { LeaseLimits, ShutdownOptions } from '../options.js';
import type { Batcher } from '../requests/batcher.js';
import { InFlight } from '../requests/in-flight.js';
import { withTimeout } from '../requests/store-timeout.js';
import type { TimerWheel } from '../timer-wheel.js';
import type { Grant } from './grant.js';
import { type HeldLockOptions, type HeldLockParts, HeldLock } from './held-lock.js';
import { LeaseVerifier } from './lease-verifier.js';
import type { InternalLock } from './internal-lock.js';
import type { Releaser } from './releaser.js';
import { Renewer } from './renewer.js';

interface HeldLocksParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly batcher: Batcher;
  readonly releaser: Releaser;
  readonly leaseLimits: LeaseLimits;
  /** Returns the holder of a key in the store. */
  readonly inspect: (storeKey: string, timeoutMs: number) => Promise<LockRecord | null>;
}

/** The locks that this process holds, and the work under them. Drains both at shutdown. */
export class HeldLocks {
  readonly #clock: Clock;
  readonly #releaser: Releaser;
  readonly #list = new LinkedList<HeldLock>();
  readonly #lockParts: HeldLockParts;
  /** What the drain waits for: held locks until they are released or lost, and work until it has ended. */
  readonly #awaited = new InFlight();
  /** The same of the work that closes the application itself, which waits for the drain. */
  readonly #closing = new InFlight();
  readonly #closingLocks = new Set<HeldLock>();
  /** The locks under which work runs, and the counter that waits for it. */
  readonly #locksInUse = new Map<InternalLock, InFlight>();
  #isClosed = false;

  constructor({ clock, timerWheel, events, batcher, releaser, leaseLimits, inspect }: HeldLocksParts) {
    this.#clock = clock;
    this.#releaser = releaser;
    const list = this.#list;
    const renewer = new Renewer({ clock, events, batcher, inspect });
    const verifier = new LeaseVerifier<HeldLock>({ clock, timerWheel, heldLocks: list });
    const onEnded = (held: HeldLock) => (this.#closingLocks.has(held) ? this.#closing : this.#awaited).end();
    this.#lockParts = { clock, timerWheel, events, renewer, releaser, verifier, list, leaseLimits, onEnded };
  }

  /** Adds a grant. Must be called in the turn of the event loop in which the grant arrived. */
  add(grant: Grant, options: HeldLockOptions): HeldLock {
    const held = new HeldLock(grant, options, this.#lockParts);
    // After close() nothing renews or releases it, so it expires.
    if (!this.#isClosed) {
      held.start();
      this.#awaited.begin();
      this.#lockParts.verifier.start();
    }
    return held;
  }

  /**
   * Runs the work and releases the lock. Returns the result of the work or rejects with its error.
   *
   * @throws LockLostError if the work succeeded, but did not have the lock until its end
   */
  async runAndRelease<T>(lock: InternalLock, work: () => Promise<T>): Promise<T> {
    this.#countWork(lock, this.#awaited);
    try {
      const value = await work();
      if (lock.isHeld) lock.warnOfOpenTransaction();
      await this.#releaseAfterWork(lock);
      return value;
    } catch (error) {
      await whenReleaseSent(lock);
      throw error;
    } finally {
      this.#countWork(lock, undefined);
    }
  }

  /** The keys of the locks that this process holds. */
  get keys(): readonly string[] {
    return [...this.#list].map(({ grant }) => grant.key);
  }

  /** Confirms the locks of this key at once, instead of at their next renewal. */
  async confirmAll(isOfKey: (storeKey: string) => boolean): Promise<void> {
    const confirmations: Promise<RenewResult>[] = [];
    for (const held of this.#list) if (isOfKey(held.grant.request.key)) confirmations.push(held.confirm());
    await Promise.all(confirmations);
  }

  /**
   * Waits until all work under locks has ended and all locks are released. After `drainMs` it aborts the signals of the
   * rest, and after `abortGraceMs` more it stops renewing them. Does not wait for the locks of the work that closes the
   * application. Returns the keys that were not released.
   */
  async drain(
    { drainMs, abortGraceMs }: Required<ShutdownOptions>,
    closingLocks: readonly InternalLock[],
  ): Promise<readonly string[]> {
    for (const lock of closingLocks) this.#awaitLater(lock);
    if (!(await this.#waitFor(this.#awaited, drainMs))) {
      // A listener may release its lock, which removes it from the list.
      for (const held of [...this.#list]) held.abort(drainTimeoutError(held.grant));
      await this.#waitFor(this.#awaited, abortGraceMs);
    }
    for (const held of this.#closingLocks) held.stopRenewing();
    // A release now would let another process acquire a lock whose work still runs. So the lease is left to expire.
    return this.#drop([...this.#list].filter((held) => !this.#closingLocks.has(held)));
  }

  /** Waits until the work that closed the application has ended and its locks are released, but at most `timeoutMs`. */
  async waitForClosingWork(timeoutMs: number): Promise<void> {
    await this.#waitFor(this.#closing, timeoutMs);
    await withTimeout(this.#clock, timeoutMs, this.#releaser.whenSettled(), { awaited: true });
  }

  /** Renews, releases and sends nothing from now on. Aborts the signals of work that still runs. */
  close(): void {
    this.#isClosed = true;
    this.#lockParts.verifier.stop();
    const left = [...this.#list];
    this.#drop(left);
    for (const held of left) held.abort(endedBeforeWorkError(held.grant));
  }

  /** Lets the drain end before this work of the application, which itself waits for the drain. */
  #awaitLater(lock: InternalLock): void {
    if (this.#locksInUse.has(lock)) this.#countWork(lock, this.#closing);
    for (const held of this.#list) {
      if (!lock.uses(held)) continue;
      this.#closingLocks.add(held);
      this.#closing.begin();
      this.#awaited.end();
    }
    lock.abort(closedByWorkError(lock));
  }

  #drop(left: readonly HeldLock[]): readonly string[] {
    for (const held of left) held.drop();
    return left.map(({ grant }) => grant.key);
  }

  /** Makes this counter, and no other, wait for the end of the work under the lock. */
  #countWork(lock: InternalLock, counter: InFlight | undefined): void {
    this.#locksInUse.get(lock)?.end();
    counter?.begin();
    if (counter) this.#locksInUse.set(lock, counter);
    else this.#locksInUse.delete(lock);
  }

  /**
   * Resolves when the release has left this process if the lock is valid: then no other process had the lock until
   * now. If the lock is in doubt, it waits for the result.
   *
   * @throws LockLostError if the work did not have the lock until its end
   */
  async #releaseAfterWork(lock: InternalLock): Promise<void> {
    if (lock.isLost) lock.throwIfLost();
    if (!lock.isHeld) return;
    if (lock.isValid()) return whenReleaseSent(lock);
    // The lease may have ended between the two looks.
    if (lock.isLost) lock.throwIfLost();
    const result = await new Promise<ReleaseResult>((resolve) => lock.startRelease({ onResult: resolve }));
    if (result.kind !== 'released') throw lostDuringWorkError(lock.key);
  }

  #waitFor(counter: InFlight, timeoutMs: number): Promise<boolean> {
    return withTimeout(this.#clock, timeoutMs, counter.whenIdle(), { awaited: true });
  }
}

/**
 * Releases the lock. Resolves when the release has left this process, so that it takes effect even if the process exits,
 * or with its result. So the timeout of the release limits it.
 */
const whenReleaseSent = (lock: InternalLock): Promise<void> =>
  new Promise((resolve) => {
    const settle = () => resolve();
    if (lock.isHeld) lock.startRelease({ onResult: settle, onSent: settle });
    else lock.releaseLost(settle);
  });

const closedByWorkError = ({ key }: InternalLock) =>
  new LockShutdownError(
    `The work under lock "${key}" closed the application itself, so shutdown does not wait for it. If the work ` +
      `does not end soon, its lease expires while it runs.`,
    { key },
  );

const drainTimeoutError = ({ key }: Grant) =>
  new LockShutdownError(
    `The application is shutting down, and the work under lock "${key}" did not end in time. ` +
      `End it now, or raise shutdown.drainMs.`,
    { key },
  );

const endedBeforeWorkError = ({ key }: Grant) =>
  new LockShutdownError(`The application has ended before the work under lock "${key}".`, { key });
