import { LockLostError } from '../core/errors.js';
import type { RevokeReason } from '../core/events.js';
import { withJson } from '../core/json.js';
import type { LockHandle } from '../core/leases/lock-handle.js';
import type { WheelTimer } from '../core/timer-wheel.js';
import type { Candidate, LeaderInfo, LeaderTerm } from './candidate.interface.js';
import type { Election } from './election.js';
import { LeaderObserver } from './leader-observer.js';
import { Term, waitForAbort } from './term.js';

interface ElectionCandidateParts {
  readonly election: Election;
  readonly defaultLeaseMs: number;
  /** Settles when an earlier candidate of this process has ended, whose work may still run. */
  readonly previousEnded: Promise<void>;
}

/**
 * How long a candidate waits after a term, or after a store that is down has rejected it, before it campaigns again. Longer than
 * the backoff of waiters on a store without a wait queue (200 ms), so that another candidate is elected first.
 */
const randomBackoffMs = () => 500 + Math.random() * 500;

/**
 * The part of this process in one election. It campaigns in the wait queue, leads, backs off and campaigns again, until it
 * leaves. While {@link Election.mayLead} returns `false`, it checks again after each backoff.
 */
export class ElectionCandidate implements Candidate {
  readonly election: Election;
  /** Settles when the candidate has left and all work of its terms has ended. */
  ended: Promise<void>;
  readonly #parts: ElectionCandidateParts;
  readonly #leaderObserver: LeaderObserver;
  readonly #leaving = new AbortController();
  #campaigning: Promise<void> = Promise.resolve();
  #term: Term | undefined;
  #backoffTimer: WheelTimer | undefined;
  /** The number of jobs that have joined; `undefined` once something else has. */
  #jobCount: number | undefined = 0;

  constructor(parts: ElectionCandidateParts) {
    this.#parts = parts;
    this.election = parts.election;
    this.#leaderObserver = new LeaderObserver(parts.election);
    this.ended = parts.previousEnded;
  }

  get leaseMs(): number {
    return this.election.leaseMs ?? this.#parts.defaultLeaseMs;
  }

  /** Stays in the election when its jobs have ended. */
  keep(): void {
    this.#jobCount = undefined;
  }

  /** Adds a job. The returned function removes it, and leaves the election if nothing else has joined it. */
  addJob(): () => void {
    if (this.#jobCount !== undefined) this.#jobCount += 1;
    return () => {
      if (this.#jobCount === undefined) return;
      this.#jobCount -= 1;
      if (this.#jobCount === 0) void this.leave();
    };
  }

  get hasLeft(): boolean {
    return this.#leaving.signal.aborted;
  }

  /** The active term of this process. */
  get currentTerm(): Term | undefined {
    return this.#term?.isActive ? this.#term : undefined;
  }

  /** Like {@link currentTerm}, but asks the store first if the wall clock and the monotonic clock disagree. */
  async confirmTerm(): Promise<Term | undefined> {
    const term = this.#term;
    return (await term?.isConfirmed()) ? term : undefined;
  }

  /** Whether it has a term that is neither active nor over. */
  get isInDoubt(): boolean {
    return this.#term?.isInDoubt ?? false;
  }

  isLeader(): boolean {
    return this.currentTerm !== undefined;
  }

  term(): LeaderTerm | null {
    return this.currentTerm?.leaderTerm ?? null;
  }

  async leader(): Promise<LeaderInfo | null> {
    const { locks, name } = this.election;
    const info = await locks.leaders.inspect(name);
    if (!info) return null;
    const { instance, since, fencingToken: term, remainingMs } = info;
    return withJson({ instance, since, term, remainingMs: Math.ceil(remainingMs) });
  }

  async resign(): Promise<void> {
    const { locks, name: key } = this.election;
    const term = this.#term;
    term?.revoke('resigned', new LockLostError(`The leadership of "${key}" was resigned.`, { key }));
    // If the work of the term calls this, waiting would be a deadlock.
    if (!locks.leaders.isLeading(key)) await term?.finished;
  }

  async leave(): Promise<void> {
    const { locks, name: key } = this.election;
    this.stop('resigned', new LockLostError(`This process left the election "${key}".`, { key }));
    if (!locks.leaders.isLeading(key)) await (this.#term?.finished ?? this.#campaigning);
  }

  start(): void {
    if (this.hasLeft) return;
    this.#campaigning = this.#campaign();
    this.ended = Promise.all([this.#parts.previousEnded, this.#campaigning]).then(() => undefined);
  }

  /** Revokes the term and leaves the wait queue. */
  stop(reason: RevokeReason, error: Error): void {
    this.#leaving.abort(error);
    this.#leaderObserver.stop();
    if (this.#backoffTimer?.cancel()) this.#backoffTimer.value.onDue();
    this.#term?.revoke(reason, error);
  }

  /** Stops waiting for work of the term; see {@link Term.stopWaitingForWork}. */
  stopWaitingForWork(): void {
    this.#term?.stopWaitingForWork();
  }

  async #campaign(): Promise<void> {
    await Promise.race([this.#parts.previousEnded, waitForAbort(this.#leaving.signal)]);
    if (!this.hasLeft)
      this.#leaderObserver.start(this.leaseMs, async () => (this.isLeader() ? null : this.leader()));
    while (!this.hasLeft) {
      const lock = await this.#waitForElection();
      if (lock) await this.#lead(lock);
      await this.#backOff();
    }
  }

  /** Waits in the queue until elected. A store that is down rejects the request, which has then emitted `unavailable`. */
  async #waitForElection(): Promise<LockHandle | undefined> {
    const { locks, name } = this.election;
    const { leaseMs } = this;
    if (!this.election.mayLead()) return undefined;
    try {
      return await locks.leaders.wait(name, { leaseMs, signal: this.#leaving.signal });
    } catch {
      return undefined;
    }
  }

  async #lead(lock: LockHandle): Promise<void> {
    const { locks, name } = this.election;
    if (this.hasLeft || !this.election.mayLead()) {
      await lock[Symbol.asyncDispose]();
      return;
    }
    const term = new Term(this.election, lock);
    this.#term = term;
    locks.events.emit('elected', { election: name, term: term.leaderTerm.number });
    this.#leaderObserver.observe(term.leaderTerm.number, locks.instance);
    await term.runToEnd();
    this.#term = undefined;
  }

  /** Resolves when the backoff is over or the candidate leaves. */
  async #backOff(): Promise<void> {
    if (this.hasLeft) return;
    const { timerWheel, locks } = this.election;
    const atMs = locks.clock.monotonicMs() + randomBackoffMs();
    await new Promise<void>((run) => (this.#backoffTimer = timerWheel.add(atMs, { onDue: run })));
  }
}
