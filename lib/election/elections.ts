import { AsyncResource } from 'node:async_hooks';
import { Agenda } from '../core/agenda.js';
import { LockConfigError, LockTimeoutError } from '../core/errors.js';
import type { Locks } from '../core/locks.js';
import { Candidacy } from './candidacy.js';
import { BUILT_IN_ELECTION_LEASE_MS, type ElectionOptions, checkElection } from './election.options.js';
import { type Handler, type Handlers, noHandlers } from './handlers.js';
import type { Term } from './term.js';

interface ElectionDefaults {
  /** The lease of elections for which none is given, where the module has one. */
  readonly defaultLeaseMs?: number | undefined;
}

/** The elections in which the process takes part through one module, in each as one candidate. */
export class Elections {
  readonly #locks: Locks;
  readonly #agenda: Agenda;
  readonly #candidacies = new Map<string, Candidacy>();
  readonly #handlers = new Map<string, Handlers>();
  /** The names for which a decorated method has joined. */
  readonly #ofMethods = new Set<string>();
  /** Those that only jobs have joined, and how many of them. */
  readonly #forJobs = new Map<Candidacy, number>();
  /** By election that leads jobs: whether the scheduler of this process fires one of them. */
  readonly #firing = new Map<string, (() => boolean)[]>();
  /** Those that begin once such a job is fired. */
  readonly #held = new WeakSet<Candidacy>();
  /** Candidates stand in the asynchronous context of none of those who joined them. */
  readonly #context = new AsyncResource('LeaderElection');
  readonly #defaultLeaseMs: number;
  #hasStarted = false;

  constructor(locks: Locks, { defaultLeaseMs = BUILT_IN_ELECTION_LEASE_MS }: ElectionDefaults = {}) {
    this.#locks = locks;
    this.#defaultLeaseMs = defaultLeaseMs;
    this.#agenda = new Agenda(locks.clock, { awaited: true });
    const { stopping } = locks;
    stopping.addEventListener('abort', () => this.#stop(stopping.reason as Error), { once: true });
  }

  /** @throws LockConfigError for a wrong name or option, or if this process stands with another lease already */
  join(name: string, options: ElectionOptions = {}): Candidacy {
    const candidacy = this.#candidacyIn(name, options);
    this.#forJobs.delete(candidacy);
    return candidacy;
  }

  /** Takes part for a decorated method. */
  joinForMethod(name: string): void {
    this.join(name);
    this.#ofMethods.add(name);
  }

  /**
   * Takes part for a method that no look for decorated methods has found, from its first call on. A process that has left the
   * election since stays out of it.
   */
  joinOnCall(name: string): void {
    if (!this.#ofMethods.has(name) && !this.#locks.stopping.aborted) this.joinForMethod(name);
  }

  /**
   * Takes part for a job, whose handler runs when a term begins, until what this returns is called. Then the process leaves
   * the election, unless somebody else has joined it.
   */
  joinForJob(name: string, handler: Handler): () => void {
    const { elected } = this.#handlersOf(name);
    const before = this.#candidacies.get(name);
    elected.push(handler);
    const candidacy = this.#candidacyIn(name, {});
    const jobs = candidacy === before ? this.#forJobs.get(candidacy) : 0;
    if (jobs !== undefined) this.#forJobs.set(candidacy, jobs + 1);
    this.standIfHeld(name);
    return () => this.#leaveForJob(candidacy, elected, handler);
  }

  /**
   * This process is elected only while its scheduler fires one of the jobs that run on the leader: if it led, they would run
   * nowhere. This holds for every caller of {@link join}. It must be known before {@link start}.
   */
  standOnceFiring(name: string, isFiring: () => boolean): void {
    this.#firing.set(name, [...(this.#firing.get(name) ?? []), isFiring]);
  }

  /** A job of the election is fired here: whoever joined while none was stands now. */
  standIfHeld(name: string): void {
    const candidacy = this.#candidacies.get(name);
    if (candidacy && this.#held.delete(candidacy)) this.#begin(name, candidacy);
  }

  #leaveForJob(candidacy: Candidacy, elected: Handler[], handler: Handler): void {
    const index = elected.indexOf(handler);
    if (index === -1) return;
    elected.splice(index, 1);
    const jobs = this.#forJobs.get(candidacy);
    if (jobs === undefined) return;
    if (jobs > 1) this.#forJobs.set(candidacy, jobs - 1);
    else void candidacy.leave();
  }

  #candidacyIn(name: string, options: ElectionOptions): Candidacy {
    const [{ maxLeaseMs }, defaultLeaseMs] = [this.#locks, this.#defaultLeaseMs];
    checkElection(name, options, { defaultLeaseMs, maxLeaseMs });
    this.#locks.stopping.throwIfAborted();
    const present = this.#candidacies.get(name);
    if (present && !present.hasLeft) {
      if (!this.#hasStarted) present.takeLease(options.leaseMs);
      return withLease(present, name, options.leaseMs);
    }
    const candidacy = new Candidacy({
      election: name,
      leaseMs: options.leaseMs,
      defaultLeaseMs,
      locks: this.#locks,
      agenda: this.#agenda,
      handlers: this.#handlersOf(name),
      mayLead: () => this.#mayLead(name),
      after: present?.ended ?? Promise.resolve(),
    });
    this.#candidacies.set(name, candidacy);
    if (this.#hasStarted) this.#beginOrHold(name, candidacy);
    return candidacy;
  }

  /** What runs when a term begins; at once if one is on. */
  onElected(name: string, handler: Handler): void {
    this.#handlersOf(name).elected.push(handler);
    this.presentTerm(name)?.start(handler);
  }

  /** What runs when a term ends. */
  onRevoked(name: string, handler: Handler): void {
    this.#handlersOf(name).revoked.push(handler);
  }

  /** The application is ready to lead. */
  start(): void {
    this.#hasStarted = true;
    for (const [name, candidacy] of this.#candidacies) this.#beginOrHold(name, candidacy);
  }

  /** Those in which this process takes part. */
  get names(): readonly string[] {
    return [...this.#candidacies.keys()];
  }

  /** The term in which this process leads now. */
  presentTerm(name: string): Term | undefined {
    return this.#candidacies.get(name)?.presentTerm;
  }

  /**
   * The same, for callers that can wait: after a step of the wall clock, the store is asked first whether this process
   * still leads.
   */
  async confirmedTerm(name: string): Promise<Term | undefined> {
    return this.presentTerm(name) ?? (await this.#candidacies.get(name)?.confirmedTerm());
  }

  /** @throws LockConfigError before the application has registered the elections of its decorators */
  throwIfTooEarly(name: string, place: string): void {
    if (!this.#hasStarted && !this.#candidacies.has(name)) throw tooEarly(place);
  }

  /** The application has waited long enough for the work of leaders. */
  close(): void {
    for (const candidacy of this.#candidacies.values()) candidacy.giveUp();
  }

  #beginOrHold(name: string, candidacy: Candidacy): void {
    if (this.#mayLead(name)) this.#begin(name, candidacy);
    else this.#held.add(candidacy);
  }

  /** Whether a job would run here, or the election leads none of the scheduler. */
  #mayLead(name: string): boolean {
    const jobs = this.#firing.get(name);
    if (!jobs || jobs.some((isFiring) => isFiring())) return true;
    return this.#handlersOf(name).elected.some((handler) => handler.isFiring?.());
  }

  #begin(name: string, candidacy: Candidacy): void {
    this.#context.runInAsyncScope(() => candidacy.begin());
    void candidacy.ended.then(() => {
      this.#forJobs.delete(candidacy);
      if (this.#candidacies.get(name) !== candidacy) return;
      this.#candidacies.delete(name);
      const { elected, revoked } = this.#handlersOf(name);
      if (elected.length + revoked.length === 0) this.#handlers.delete(name);
    });
  }

  #stop(reason: Error): void {
    for (const candidacy of this.#candidacies.values()) candidacy.stop('shutdown', reason);
  }

  #handlersOf(name: string): Handlers {
    const handlers = this.#handlers.get(name) ?? noHandlers();
    this.#handlers.set(name, handlers);
    return handlers;
  }
}

function withLease(candidacy: Candidacy, name: string, leaseMs = candidacy.leaseMs): Candidacy {
  if (leaseMs === candidacy.leaseMs) return candidacy;
  throw new LockConfigError(
    `Expected one leaseMs for the election "${name}" in this process, got ${leaseMs} and before that ` +
      `${candidacy.leaseMs}. Give it in one place, before the application has booted.`,
    { key: name },
  );
}

const tooEarly = (place: string) =>
  new LockConfigError(
    `${place} was called before its application has booted: expected a call when all elections are registered. In a test, ` +
      `\`await app.init()\` is missing: compile() alone is not enough.`,
  );

/** Somebody else has it, and we do not wait. */
export const notLeading = (name: string, place: string) =>
  new LockTimeoutError(
    `${place}: this process does not lead "${name}" now. Send the work to the leader, or leave out otherwise: 'throw' ` +
      `to skip it.`,
    { key: name },
  );
