import { AsyncResource } from 'node:async_hooks';
import { TimerWheel } from '../core/timer-wheel.js';
import { LockConfigError, LockTimeoutError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { ElectionCandidate } from './election-candidate.js';
import {
  BUILT_IN_ELECTION_LEASE_MS,
  type ElectionOptions,
  checkElectionOptions,
} from './election.options.js';
import { type ElectionHandler, type ElectionHandlers, createElectionHandlers } from './election-handlers.js';
import type { Term } from './term.js';

interface ElectionDefaults {
  /** The lease of elections for which none is given, where the module has one. */
  readonly defaultLeaseMs?: number | undefined;
}

/** The elections in which the process takes part through one module, in each as one candidate. */
export class Elections {
  readonly #locks: Locks;
  readonly #timerWheel: TimerWheel;
  readonly #candidates = new Map<string, ElectionCandidate>();
  readonly #handlers = new Map<string, ElectionHandlers>();
  /** The names for which a decorated method has joined. */
  readonly #namesOfMethods = new Set<string>();
  /** Those that only jobs have joined, and how many of them. */
  readonly #jobCounts = new Map<ElectionCandidate, number>();
  /** By election that leads jobs: whether the scheduler of this process fires one of them. */
  readonly #firingChecks = new Map<string, (() => boolean)[]>();
  /** Those that begin once such a job is fired. */
  readonly #deferred = new WeakSet<ElectionCandidate>();
  /** Candidates stand in the asynchronous context of none of those who joined them. */
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

  /** @throws LockConfigError for a wrong name or option, or if this process stands with another lease already */
  join(name: string, options: ElectionOptions = {}): ElectionCandidate {
    const candidate = this.#findOrCreateCandidate(name, options);
    this.#jobCounts.delete(candidate);
    return candidate;
  }

  /** Takes part for a decorated method. */
  joinForMethod(name: string): void {
    this.join(name);
    this.#namesOfMethods.add(name);
  }

  /**
   * Takes part for a method that no look for decorated methods has found, from its first call on. A process that has left the
   * election since stays out of it.
   */
  joinOnCall(name: string): void {
    if (!this.#namesOfMethods.has(name) && !this.#locks.stopping.aborted) this.joinForMethod(name);
  }

  /**
   * Takes part for a job, whose handler runs when a term begins, until what this returns is called. Then the process leaves
   * the election, unless somebody else has joined it.
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
   * This process is elected only while its scheduler fires one of the jobs that run on the leader: if it led, they would run
   * nowhere. This holds for every caller of {@link join}. It must be known before {@link start}.
   */
  deferUntilFiring(name: string, isFiring: () => boolean): void {
    this.#firingChecks.set(name, [...(this.#firingChecks.get(name) ?? []), isFiring]);
  }

  /** A job of the election is fired here: whoever joined while none was stands now. */
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

  /** What runs when a term begins; at once if one is on. */
  onElected(name: string, handler: ElectionHandler): void {
    this.#handlersOf(name).elected.push(handler);
    this.currentTerm(name)?.runHandler(handler);
  }

  /** What runs when a term ends. */
  onRevoked(name: string, handler: ElectionHandler): void {
    this.#handlersOf(name).revoked.push(handler);
  }

  /** The application is ready to lead. */
  start(): void {
    this.#hasStarted = true;
    for (const [name, candidate] of this.#candidates) this.#startOrDefer(name, candidate);
  }

  /** Those in which this process takes part. */
  get names(): readonly string[] {
    return [...this.#candidates.keys()];
  }

  /** The term in which this process leads now. */
  currentTerm(name: string): Term | undefined {
    return this.#candidates.get(name)?.currentTerm;
  }

  /**
   * The same, for callers that can wait: after a step of the wall clock, the store is asked first whether this process
   * still leads.
   */
  async confirmTerm(name: string): Promise<Term | undefined> {
    return this.currentTerm(name) ?? (await this.#candidates.get(name)?.confirmTerm());
  }

  /** @throws LockConfigError before the application has registered the elections of its decorators */
  throwIfNotBooted(name: string, location: string): void {
    if (!this.#hasStarted && !this.#candidates.has(name)) throw notBootedError(location);
  }

  /** The application has waited long enough for the work of leaders. */
  close(): void {
    for (const candidate of this.#candidates.values()) candidate.stopWaitingForWork();
  }

  #startOrDefer(name: string, candidate: ElectionCandidate): void {
    if (this.#mayLead(name)) this.#startCandidate(name, candidate);
    else this.#deferred.add(candidate);
  }

  /** Whether a job would run here, or the election leads none of the scheduler. */
  #mayLead(name: string): boolean {
    const jobs = this.#firingChecks.get(name);
    if (!jobs || jobs.some((isFiring) => isFiring())) return true;
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
    const handlers = this.#handlers.get(name) ?? createElectionHandlers();
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
      `${candidate.leaseMs}. Give it in one place, before the application has booted.`,
    { key: name },
  );
}

const notBootedError = (location: string) =>
  new LockConfigError(
    `${location} was called before its application has booted: expected a call when all elections are registered. In a test, ` +
      `\`await app.init()\` is missing: compile() alone is not enough.`,
  );

/** Somebody else has it, and we do not wait. */
export const notLeaderError = (name: string, location: string) =>
  new LockTimeoutError(
    `${location}: this process does not lead "${name}" now. Send the work to the leader, or leave out otherwise: 'throw' ` +
      `to skip it.`,
    { key: name },
  );
