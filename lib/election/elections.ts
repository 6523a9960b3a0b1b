import { AsyncResource } from 'node:async_hooks';
import { LockConfigError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { formatReason } from '../core/format.js';
import { TimerWheel } from '../core/timer-wheel.js';
import { notBootedError } from '../decorators/decorated-method.js';
import type { LeaderInfo } from './candidate.interface.js';
import { ElectionCandidate } from './election-candidate.js';
import { Election, type ElectionHandler, type ElectionOptions, checkElectionOptions } from './election.js';
import type { Term } from './term.js';

const BUILT_IN_LEASE_MS = 15_000;

/** The leader of an election, `null` if it has none, or why the leader cannot be read. */
export type ElectionState = { readonly election: string } & (
  { readonly leader: LeaderInfo | null } | { readonly error: string }
);

/** The elections that this process has joined through one module. It is one candidate in each of them. */
export class Elections {
  readonly #locks: Locks;
  readonly #timerWheel: TimerWheel;
  readonly #elections = new Map<string, Election>();
  readonly #candidates = new Map<string, ElectionCandidate>();
  /** The elections that a decorated method has joined. */
  readonly #namesOfMethods = new Set<string>();
  /** The candidates that start when this process fires such a job. */
  readonly #deferred = new WeakSet<ElectionCandidate>();
  /** Candidates run in this asynchronous context, never in that of a caller of `join`. */
  readonly #context = new AsyncResource('LeaderElection');
  readonly #defaultLeaseMs: number;
  #hasStarted = false;

  /** @param defaultLeaseMs The lease of elections without their own, if the module sets `defaults.leaseMs`. */
  constructor(locks: Locks, defaultLeaseMs = BUILT_IN_LEASE_MS) {
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
    candidate.keep();
    return candidate;
  }

  /** Joins an election for a decorated method. */
  joinForMethod(name: string): void {
    this.join(name);
    this.#namesOfMethods.add(name);
  }

  /**
   * Joins an election for a job. Its handler runs when a term begins. The returned function removes the job; the process then
   * leaves the election, unless something else has joined it.
   *
   * @throws LockConfigError for a wrong name, or if the store does not allow the lease of the election
   */
  joinForJob(name: string, handler: ElectionHandler): () => void {
    // May throw, so the handler is added after it.
    const candidate = this.#findOrCreateCandidate(name, {});
    const { elected } = candidate.election;
    elected.push(handler);
    const leave = candidate.addJob();
    this.startDeferred(name);
    return () => {
      const index = elected.indexOf(handler);
      if (index === -1) return;
      elected.splice(index, 1);
      leave();
    };
  }

  /**
   * Lets this process be elected only while its scheduler fires one of the jobs that run on the leader. Otherwise it could lead
   * while the jobs run nowhere. This applies to every caller of {@link join}. Call it before {@link start}.
   *
   * @throws LockConfigError for a wrong name, or if the store does not allow the lease of the election
   */
  deferUntilFiring(name: string, isFiring: () => boolean): void {
    this.#check(name, {});
    this.#electionOf(name).firingChecks.push(isFiring);
  }

  /** Starts a candidate that was deferred, because this process fires a job of the election now. */
  startDeferred(name: string): void {
    const candidate = this.#candidates.get(name);
    if (candidate && this.#deferred.delete(candidate)) this.#startCandidate(candidate);
  }

  #findOrCreateCandidate(name: string, options: ElectionOptions): ElectionCandidate {
    this.#check(name, options);
    this.#locks.stopping.throwIfAborted();
    const existing = this.#candidates.get(name);
    const election = this.#electionOf(name);
    if (!existing || existing.hasLeft) {
      election.leaseMs = options.leaseMs ?? election.leaseMs;
      return this.#context.runInAsyncScope(() => this.#createCandidate(election, existing));
    }
    // Before the start, one caller may still set the lease for all that did not.
    if (!this.#hasStarted) election.leaseMs ??= options.leaseMs;
    return requireSameLease(existing, name, options.leaseMs);
  }

  #createCandidate(election: Election, previous?: ElectionCandidate): ElectionCandidate {
    const candidate = new ElectionCandidate({
      ...{ election, defaultLeaseMs: this.#defaultLeaseMs },
      previousEnded: previous?.ended ?? Promise.resolve(),
    });
    this.#candidates.set(election.name, candidate);
    if (this.#hasStarted) this.#startOrDefer(candidate);
    return candidate;
  }

  #check(name: string, options: ElectionOptions): void {
    checkElectionOptions(name, options, {
      defaultLeaseMs: this.#defaultLeaseMs,
      leaseLimits: this.#locks.leaseLimits,
    });
  }

  /** Adds a handler that runs when a term begins, and at once if this process leads now. */
  onElected(name: string, handler: ElectionHandler): void {
    this.#electionOf(name).elected.push(handler);
    this.currentTerm(name)?.runHandler(handler);
  }

  /** Adds a handler that runs when a term ends. */
  onRevoked(name: string, handler: ElectionHandler): void {
    this.#electionOf(name).revoked.push(handler);
  }

  /** Starts all candidates. Call it when the application has booted and can do the work of a leader. */
  start(): void {
    this.#hasStarted = true;
    for (const candidate of this.#candidates.values()) this.#startOrDefer(candidate);
  }

  /** The names of all elections that this process has joined. */
  get names(): readonly string[] {
    return [...this.#candidates.keys()];
  }

  /**
   * The leaders of all elections that this process has joined, each as read from the store or why it cannot be read. Never rejects.
   */
  readLeaders(): Promise<readonly ElectionState[]> {
    const readOne = async ([election, candidate]: [string, ElectionCandidate]) =>
      candidate.leader().then(
        (leader) => ({ election, leader }),
        (error: unknown) => ({ election, error: formatReason(error) }),
      );
    return Promise.all([...this.#candidates].map(readOne));
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

  /** Whether this process has a term of which the store has not said, after a step of the clock, whether it still has it. */
  isInDoubt(name: string): boolean {
    return this.#candidates.get(name)?.isInDoubt ?? false;
  }

  /**
   * The term that a call of a decorated method belongs to. If the method was not found at boot, its first call joins the
   * election; if this process has left the election since, it does not join again.
   *
   * @throws LockConfigError if the elections of decorated methods are not registered yet
   */
  async termForCall(name: string, location: string): Promise<Term | undefined> {
    if (!this.#hasStarted && !this.#candidates.has(name)) throw notBootedError(location, 'elections');
    if (!this.#namesOfMethods.has(name) && !this.#locks.stopping.aborted) this.joinForMethod(name);
    return this.confirmTerm(name);
  }

  /** Stops waiting for the work of terms, at the end of shutdown. */
  close(): void {
    for (const candidate of this.#candidates.values()) candidate.stopWaitingForWork();
  }

  #startOrDefer(candidate: ElectionCandidate): void {
    if (candidate.election.mayLead()) this.#startCandidate(candidate);
    else this.#deferred.add(candidate);
  }

  #startCandidate(candidate: ElectionCandidate): void {
    this.#context.runInAsyncScope(() => candidate.start());
    const { election } = candidate;
    void candidate.ended.then(() => {
      if (this.#candidates.get(election.name) !== candidate) return;
      this.#candidates.delete(election.name);
      if (election.isEmpty) this.#elections.delete(election.name);
    });
  }

  #stop(reason: Error): void {
    for (const candidate of this.#candidates.values()) candidate.stop('shutdown', reason);
  }

  #electionOf(name: string): Election {
    const existing = this.#elections.get(name);
    if (existing) return existing;
    const election = new Election({ name, locks: this.#locks, timerWheel: this.#timerWheel });
    this.#elections.set(name, election);
    return election;
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
