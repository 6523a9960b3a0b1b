import { LockLostError } from '../core/errors.js';
import type { RevokeReason } from '../core/events.js';
import { withJson } from '../core/json.js';
import type { LockHandle } from '../core/leases/lock-handle.js';
import type { WheelTimer } from '../core/timer-wheel.js';
import { rejectStream } from '../decorators/reject-stream.js';
import type { LeaderTerm } from './candidate.interface.js';
import type { Election, ElectionHandler } from './election.js';

/**
 * One leadership of this process, from its grant until its last work has ended. Only then is the lease released. So the work of
 * two terms never runs at the same time while leases hold.
 */
export class Term {
  readonly leaderTerm: LeaderTerm;
  /** Settles when the lease was released, or is left to expire. */
  readonly finished: Promise<void>;
  readonly #election: Election;
  readonly #lock: LockHandle;
  readonly #runningWork = new Map<Promise<unknown>, string>();
  #reason: RevokeReason = 'lost';
  #timeoutTimer: WheelTimer | undefined;
  #hasStoppedWaiting = false;
  #resolveFinished!: () => void;

  constructor(election: Election, lock: LockHandle) {
    const { fencingToken, signal } = lock;
    this.#election = election;
    this.#lock = lock;
    this.leaderTerm = withJson({ number: fencingToken, signal });
    this.finished = new Promise((resolve) => (this.#resolveFinished = resolve));
  }

  /** Reads the clock, so it is correct even if no timer has run since the lease ended. */
  get isActive(): boolean {
    return this.#lock.isValid() && !this.leaderTerm.signal.aborted;
  }

  /** Whether only the step of a clock speaks against it, and the store has not been asked yet or has not answered. */
  get isInDoubt(): boolean {
    return !this.#lock.isLost && !this.leaderTerm.signal.aborted && !this.isActive;
  }

  /** Like {@link isActive}, but asks the store first if the wall clock and the monotonic clock disagree. */
  async isConfirmed(): Promise<boolean> {
    await this.#lock.isConfirmed();
    return this.isActive;
  }

  /** Ends the leadership at once. Work of the term may still run, but no longer as the leader. */
  revoke(reason: RevokeReason, error: Error): void {
    if (this.#lock.isLost || this.leaderTerm.signal.aborted) return;
    this.#reason = reason;
    this.#lock.abort(error);
  }

  /** Runs the handlers of the term. Settles when all work has ended and the lease is released. */
  async runToEnd(): Promise<void> {
    try {
      await this.#election.locks.runAndRelease(this.#lock, () => this.#runHandlers());
    } catch (error) {
      // The loss of the lease was published when it happened.
      if (!(error instanceof LockLostError)) throw error;
    } finally {
      this.#resolveFinished();
    }
  }

  /** Runs work that belongs to the term. The lease is not released before the work has ended. */
  runWork<T>(location: string, work: () => T | Promise<T>): Promise<T> {
    const running = this.#election.locks.runWithLock(this.#lock, work);
    this.#runningWork.set(running, location);
    const remove = () => this.#runningWork.delete(running);
    running.then(remove, remove);
    return running;
  }

  /**
   * Stops waiting for work that has not ended. The lease is left to expire, because after a release the next leader could be
   * elected while the work still runs.
   */
  stopWaitingForWork(): void {
    this.#stopTimeout();
    if (this.#hasStoppedWaiting || this.#runningWork.size === 0) return;
    this.#hasStoppedWaiting = true;
    const { locks, name: election } = this.#election;
    this.#lock.stopRenewing();
    const methods = [...new Set(this.#runningWork.values())];
    locks.events.emit('leader-overran', { election, term: this.leaderTerm.number, methods });
    this.#resolveFinished();
  }

  async #runHandlers(): Promise<void> {
    const { elected, revoked, locks, timerWheel, name: election } = this.#election;
    const { number, signal } = this.leaderTerm;
    // A handler that begins after the abort would wait for an event that has already happened.
    // A handler may remove a job from the list.
    for (const handler of [...elected]) if (!signal.aborted) this.runHandler(handler);
    await waitForAbort(signal);
    locks.events.emit('revoked', { election, term: number, reason: this.#reason });
    for (const handler of revoked) this.runHandler(handler);
    const atMs = locks.clock.monotonicMs() + this.#lock.grant.leaseMs;
    this.#timeoutTimer = timerWheel.add(atMs, { onDue: () => this.stopWaitingForWork() });
    while (this.#runningWork.size > 0) await Promise.allSettled(this.#runningWork.keys());
    this.#stopTimeout();
  }

  /** Runs a handler as work of the term. Its errors are emitted as `leader-failed`, and so is a stream that it returns. */
  runHandler({ location, run }: ElectionHandler): void {
    const work = async () => rejectStream(await run(this.leaderTerm), location);
    this.runWork(location, work).catch((error: unknown) => {
      const { locks, name: election } = this.#election;
      locks.events.emit('leader-failed', { election, term: this.leaderTerm.number, method: location, error });
    });
  }

  #stopTimeout(): void {
    this.#timeoutTimer?.cancel();
    this.#timeoutTimer = undefined;
  }
}

/** Settles when the signal has aborted. */
export const waitForAbort = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
