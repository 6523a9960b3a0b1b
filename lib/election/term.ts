import type { TimerWheel, TimerEntry } from '../core/timer-wheel.js';
import { LockLostError } from '../core/errors.js';
import type { RevokeReason } from '../core/events.js';
import { withJson } from '../core/json.js';
import type { Lease } from '../core/leases/lease.js';
import type { Locks } from '../core/locks.js';
import { waitForAbort } from './abort-signal.js';
import type { LeaderTerm } from './candidate.js';
import type { ElectionHandler, ElectionHandlers } from './election-handlers.js';

interface TermParts {
  readonly election: string;
  readonly lease: Lease;
  readonly locks: Locks;
  readonly timerWheel: TimerWheel;
  readonly handlers: ElectionHandlers;
}

/**
 * One leadership of this process, from its grant until the last of its work has ended. Only then is it given back, so that
 * the work of two terms never runs at once while leases hold.
 */
export class Term {
  readonly leaderTerm: LeaderTerm;
  /** Settles once the term was given back, or is left to lapse. */
  readonly finished: Promise<void>;
  readonly #parts: TermParts;
  readonly #runningWork = new Map<Promise<unknown>, string>();
  #reason: RevokeReason = 'lost';
  #timeoutTimer: TimerEntry | undefined;
  #hasStoppedWaiting = false;
  #resolveFinished!: () => void;

  constructor(parts: TermParts) {
    const { fencingToken, signal } = parts.lease;
    this.#parts = parts;
    this.leaderTerm = withJson({ number: fencingToken, signal });
    this.finished = new Promise((resolve) => (this.#resolveFinished = resolve));
  }

  /** Looks at the clock. */
  get isActive(): boolean {
    return this.#parts.lease.isValid() && !this.leaderTerm.signal.aborted;
  }

  /** Like {@link isActive}, but asks the store first where the clocks of this process disagree. */
  async isConfirmed(): Promise<boolean> {
    await this.#parts.lease.isConfirmed();
    return this.isActive;
  }

  /** Revokes it now; what its work does after that, it does no longer as the leader. */
  revoke(reason: RevokeReason, error: Error): void {
    if (this.#parts.lease.isLost || this.leaderTerm.signal.aborted) return;
    this.#reason = reason;
    this.#parts.lease.abort(error);
  }

  /** Does the work of the term, and settles when all of it has ended and the term is given back. */
  async runToEnd(): Promise<void> {
    const { locks, lease } = this.#parts;
    try {
      await locks.runAndRelease(lease, () => this.#runHandlers());
    } catch (error) {
      // The loss of a lease was published when it happened.
      if (!(error instanceof LockLostError)) throw error;
    } finally {
      this.#resolveFinished();
    }
  }

  /** Runs something that belongs to the term, which is not given back before that has ended. */
  runWork<T>(location: string, work: () => T | Promise<T>): Promise<T> {
    const { locks, lease } = this.#parts;
    const running = locks.runWithLock(lease, work);
    this.#runningWork.set(running, location);
    const remove = () => this.#runningWork.delete(running);
    running.then(remove, remove);
    return running;
  }

  /** Waits no longer for work that has not ended: released now, the next leader could be elected while it runs. */
  stopWaitingForWork(): void {
    this.#stopTimeout();
    if (this.#hasStoppedWaiting || this.#runningWork.size === 0) return;
    this.#hasStoppedWaiting = true;
    const { locks, lease, election } = this.#parts;
    locks.letLapse(lease);
    const methods = [...new Set(this.#runningWork.values())];
    locks.events.emit('leader-overran', { election, term: this.leaderTerm.number, methods });
    this.#resolveFinished();
  }

  async #runHandlers(): Promise<void> {
    const { handlers, locks, lease, timerWheel, election } = this.#parts;
    const { number, signal } = this.leaderTerm;
    // Who hears of a term that is over already would wait for its end in vain.
    for (const handler of handlers.elected) if (!signal.aborted) this.runHandler(handler);
    await waitForAbort(signal);
    locks.events.emit('revoked', { election, term: number, reason: this.#reason });
    for (const handler of handlers.revoked) this.runHandler(handler);
    const atMs = locks.clock.monotonicMs() + lease.grant.leaseMs;
    this.#timeoutTimer = timerWheel.add({ atMs, run: () => this.stopWaitingForWork() });
    while (this.#runningWork.size > 0) await Promise.allSettled(this.#runningWork.keys());
    this.#stopTimeout();
  }

  /** Runs a handler as a part of the term. */
  runHandler({ location, run }: ElectionHandler): void {
    this.runWork(location, () => run(this.leaderTerm)).catch((error: unknown) => {
      const { locks, election } = this.#parts;
      locks.events.emit('leader-failed', { election, term: this.leaderTerm.number, method: location, error });
    });
  }

  #stopTimeout(): void {
    if (this.#timeoutTimer) this.#parts.timerWheel.remove(this.#timeoutTimer);
    this.#timeoutTimer = undefined;
  }
}
