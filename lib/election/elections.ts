import { AsyncResource } from 'node:async_hooks';
import { LockConfigError, LockTimeoutError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { TimerWheel } from '../core/timer-wheel.js';
import { notBootedError } from '../decorators/decorated-method.js';
import { ElectionCandidate } from './election-candidate.js';
import {
  BUILT_IN_ELECTION_LEASE_MS,
  type ElectionOptions,
  checkElectionOptions,
} from './election.options.js';
import type { ElectionHandler, ElectionHandlers, Term } from './term.js';

interface ElectionDefaults {
  /** The lease of elections without their own `leaseMs`, if the module sets `defaults.leaseMs`. */
  readonly defaultLeaseMs?: number | undefined;
}

/** The elections that this process has joined through one module. It is one candidate in each of them. */
export class Elections {
  readonly #locks: Locks;
  readonly #timerWheel: TimerWheel;
  readonly #candidates = new Map<string, ElectionCandidate>();
  readonly #handlers = new Map<string, ElectionHandlers>();
  /** The elections that a decorated method has joined. */
  readonly #namesOfMethods = new Set<string>();
  /** The number of jobs of each candidate that only jobs have joined. */
  readonly #jobCounts = new Map<ElectionCandidate, number>();
  /** For elections with jobs: functions that return whether the scheduler of this process fires a job. */
  readonly #firingChecks = new Map<string, (() => boolean)[]>();
  /** The candidates that start when this process fires such a job. */
  readonly #deferred = new WeakSet<ElectionCandidate>();
  /** Candidates run in this asynchronous context, never in that of a caller of `join`. */
  readonly #context = new AsyncResource('LeaderElection');
  readonly #defaultLeaseMs: number;
  #hasStarted = false;

  constructor(locks: Locks, { defaultLeaseMs = BUILT_IN_ELECTION_LEASE_MS }: ElectionDefaults = {}) {
    this.#locks = locks;
    this.#defaultLeaseMs = defaultLeaseMs;
    this.#timerWheel = new TimerWheel(locks.clock, { awaited: true });
    const { stopping } = locks;
    stopping.addEventListener('abort', () => this.#stop(stopping.reason as Error), { once: true });
  }

  /**
   * Joins an election, or returns the candidate that has joined it already.
   *
   * @throws LockConfigError for a wrong name or option, or if this process has joined with another lease already
   * @throws LockShutdownError if the application is shutting down
   */
  join(name: string, options: ElectionOptions = {}): ElectionCandidate {
    const candidate = this.#findOrCreateCandidate(name, options);
    this.#jobCounts.delete(candidate);
    return candidate;
  }

  /** Joins an election for a decorated method. */
  joinForMethod(name: string): void {
    this.join(name);
    this.#namesOfMethods.add(name);
  }

  /**
   * Joins an election at the first call of a decorated method that was not found at boot. If this process has left the election
   * since, it does not join again.
   */
  joinOnCall(name: string): void {
    if (!this.#namesOfMethods.has(name) && !this.#locks.stopping.aborted) this.joinForMethod(name);
  }

  /**
   * Joins an election for a job. Its handler runs when a term begins. The returned function removes the job; the process then
   * leaves the election, unless something else has joined it.
   */
  joinForJob(name: string, handler: ElectionHandler): () => void {
    const { elected } = this.#handlersOf(name);
    const previous = this.#candidates.get(name);
    elected.push(handler);
    const candidate = this.#findOrCreateCandidate(name, {});
    const jobs = candidate === previous ? this.#jobCounts.get(candidate) : 0;
    if (jobs !== undefined) this.#jobCounts.set(candidate, jobs + 1);
    this.startDeferred(name);
    return () => this.#leaveForJob(candidate, elected, handler);
  }

  /**
   * Lets this process be elected only while its scheduler fires one of the jobs that run on the leader. Otherwise it could lead
   * while the jobs run nowhere. This applies to every caller of {@link join}. Call it before {@link start}.
   */
  deferUntilFiring(name: string, isFiring: () => boolean): void {
    this.#firingChecks.set(name, [...(this.#firingChecks.get(name) ?? []), isFiring]);
  }

  /** Starts a candidate that was deferred, because this process fires a job of the election now. */
  startDeferred(name: string): void {
    const candidate = this.#candidates.get(name);
    if (candidate && this.#deferred.delete(candidate)) this.#startCandidate(name, candidate);
  }

  #leaveForJob(candidate: ElectionCandidate, elected: ElectionHandler[], handler: ElectionHandler): void {
    const index = elected.indexOf(handler);
    if (index === -1) return;
    elected.splice(index, 1);
    const jobs = this.#jobCounts.get(candidate);
    if (jobs === undefined) return;
    if (jobs > 1) this.#jobCounts.set(candidate, jobs - 1);
    else void candidate.leave();
  }

  #findOrCreateCandidate(name: string, options: ElectionOptions): ElectionCandidate {
    const [{ maxLeaseMs }, defaultLeaseMs] = [this.#locks, this.#defaultLeaseMs];
    checkElectionOptions(name, options, { defaultLeaseMs, maxLeaseMs });
    this.#locks.stopping.throwIfAborted();
    const existing = this.#candidates.get(name);
    if (existing && !existing.hasLeft) {
      if (!this.#hasStarted) existing.setLeaseIfMissing(options.leaseMs);
      return requireSameLease(existing, name, options.leaseMs);
    }
    const candidate = new ElectionCandidate({
      election: name,
      leaseMs: options.leaseMs,
      defaultLeaseMs,
      locks: this.#locks,
      timerWheel: this.#timerWheel,
      handlers: this.#handlersOf(name),
      mayLead: () => this.#mayLead(name),
      previousEnded: existing?.ended ?? Promise.resolve(),
    });
    this.#candidates.set(name, candidate);
    if (this.#hasStarted) this.#startOrDefer(name, candidate);
    return candidate;
  }

  /** Adds a handler that runs when a term begins, and at once if this process leads now. */
  onElected(name: string, handler: ElectionHandler): void {
    this.#handlersOf(name).elected.push(handler);
    this.currentTerm(name)?.runHandler(handler);
  }

  /** Adds a handler that runs when a term ends. */
  onRevoked(name: string, handler: ElectionHandler): void {
    this.#handlersOf(name).revoked.push(handler);
  }

  /** Starts all candidates. Call it when the application has booted and can do the work of a leader. */
  start(): void {
    this.#hasStarted = true;
    for (const [name, candidate] of this.#candidates) this.#startOrDefer(name, candidate);
  }

  /** The names of all elections that this process has joined. */
  get names(): readonly string[] {
    return [...this.#candidates.keys()];
  }

  /** The active term of this process in an election. */
  currentTerm(name: string): Term | undefined {
    return this.#candidates.get(name)?.currentTerm;
  }

  /**
   * Like {@link currentTerm}, for callers that can wait: after a step of the wall clock, it asks the store whether this process
   * still leads.
   */
  async confirmTerm(name: string): Promise<Term | undefined> {
    return this.currentTerm(name) ?? (await this.#candidates.get(name)?.confirmTerm());
  }

  /** @throws LockConfigError if the elections of decorated methods are not registered yet */
  throwIfNotBooted(name: string, location: string): void {
    if (!this.#hasStarted && !this.#candidates.has(name)) throw notBootedError(location, 'elections');
  }

  /** Stops waiting for the work of terms, at the end of shutdown. */
  close(): void {
    for (const candidate of this.#candidates.values()) candidate.stopWaitingForWork();
  }

  #startOrDefer(name: string, candidate: ElectionCandidate): void {
    if (this.#mayLead(name)) this.#startCandidate(name, candidate);
    else this.#deferred.add(candidate);
  }

  /** Whether this process fires a job of the election, or the election has no jobs of the scheduler. */
  #mayLead(name: string): boolean {
    const checks = this.#firingChecks.get(name);
    if (!checks || checks.some((isFiring) => isFiring())) return true;
    return this.#handlersOf(name).elected.some((handler) => handler.isFiring?.());
  }

  #startCandidate(name: string, candidate: ElectionCandidate): void {
    this.#context.runInAsyncScope(() => candidate.start());
    void candidate.ended.then(() => {
      this.#jobCounts.delete(candidate);
      if (this.#candidates.get(name) !== candidate) return;
      this.#candidates.delete(name);
      const { elected, revoked } = this.#handlersOf(name);
      if (elected.length + revoked.length === 0) this.#handlers.delete(name);
    });
  }

  #stop(reason: Error): void {
    for (const candidate of this.#candidates.values()) candidate.stop('shutdown', reason);
  }

  #handlersOf(name: string): ElectionHandlers {
    const handlers = this.#handlers.get(name) ?? { elected: [], revoked: [] };
    this.#handlers.set(name, handlers);
    return handlers;
  }
}

function requireSameLease(
  candidate: ElectionCandidate,
  name: string,
  leaseMs = candidate.leaseMs,
): ElectionCandidate {
  if (leaseMs === candidate.leaseMs) return candidate;
  throw new LockConfigError(
    `Expected one leaseMs for the election "${name}" in this process, got ${leaseMs} and before that ` +
      `${candidate.leaseMs}. Set it in one place, before the application has booted.`,
    { key: name },
  );
}

/** The same class as for a taken lock, so that callers can treat both alike. */
export const notLeaderError = (name: string, location: string) =>
  new LockTimeoutError(
    `${location}: this process does not lead "${name}" now. Send the work to the leader, or remove otherwise: 'throw' ` +
      `to skip it.`,
    { key: name },
  );
