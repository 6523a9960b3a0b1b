import type { Agenda, Entry } from '../core/agenda.js';
import { LockLostError } from '../core/errors.js';
import type { RevokeReason } from '../core/events.js';
import { withJson } from '../core/json.js';
import type { Lease } from '../core/lease.js';
import type { Locks } from '../core/locks.js';
import { aborted } from './aborted.js';
import type { Candidate, LeaderInfo, LeaderTerm } from './candidate.js';
import type { Handlers } from './handlers.js';
import { LeaderWatch } from './leader-watch.js';
import { Term } from './term.js';

interface CandidacyParts {
  readonly election: string;
  /** The lease that was asked for. */
  readonly leaseMs: number | undefined;
  readonly defaultLeaseMs: number;
  readonly locks: Locks;
  readonly agenda: Agenda;
  readonly handlers: Handlers;
  /** Checked before the candidate is queued, and again when it is granted the leadership. */
  readonly mayLead: () => boolean;
  /** The end of an earlier candidacy of this process, whose work may still run. */
  readonly after: Promise<void>;
}

/**
 * Who has led stays back for so long, as does who was turned away by a store that is down. Longer than the pauses of those
 * who wait where a store has no line (200 ms), so that one of them comes first.
 */
const stayBackMs = () => 500 + Math.random() * 500;

/**
 * The part of this process in one election: it stands in line, leads, and stands in line again, until it leaves. While it
 * may not lead it looks again and again whether it may.
 */
export class Candidacy implements Candidate {
  /** Settles once nothing of it is left, work of its terms included. */
  ended: Promise<void>;
  readonly #parts: CandidacyParts;
  readonly #watch: LeaderWatch;
  readonly #leaving = new AbortController();
  #standing: Promise<void> = Promise.resolve();
  #term: Term | undefined;
  #pause: Entry | undefined;
  #givenLeaseMs: number | undefined;

  constructor(parts: CandidacyParts) {
    this.#parts = parts;
    this.#watch = new LeaderWatch(parts);
    this.#givenLeaseMs = parts.leaseMs;
    this.ended = parts.after;
  }

  get leaseMs(): number {
    return this.#givenLeaseMs ?? this.#parts.defaultLeaseMs;
  }

  /** Before it has begun, somebody may still give the lease for those who gave none. */
  takeLease(leaseMs: number | undefined): void {
    this.#givenLeaseMs ??= leaseMs;
  }

  get hasLeft(): boolean {
    return this.#leaving.signal.aborted;
  }

  /** The term in which this process leads now. */
  get presentTerm(): Term | undefined {
    return this.#term?.isOn ? this.#term : undefined;
  }

  /** The term in which this process leads, asking the store first where the clocks of this process disagree. */
  async confirmedTerm(): Promise<Term | undefined> {
    const term = this.#term;
    return (await term?.isConfirmed()) ? term : undefined;
  }

  isLeader(): boolean {
    return this.presentTerm !== undefined;
  }

  term(): LeaderTerm | null {
    return this.presentTerm?.shown ?? null;
  }

  async leader(): Promise<LeaderInfo | null> {
    const { locks, election } = this.#parts;
    const info = await locks.leaderOf(election);
    if (!info) return null;
    const { instance, since, fencingToken: term, remainingMs } = info;
    return withJson({ instance, since, term, remainingMs });
  }

  async resign(): Promise<void> {
    const { locks, election } = this.#parts;
    const term = this.#term;
    term?.end(
      'resigned',
      new LockLostError(`The leadership of "${election}" was resigned.`, { key: election }),
    );
    // The work of the term would wait for itself.
    if (!locks.isLeading(election)) await term?.over;
  }

  async leave(): Promise<void> {
    const { locks, election } = this.#parts;
    this.stop(
      'resigned',
      new LockLostError(`This process left the election "${election}".`, { key: election }),
    );
    if (!locks.isLeading(election)) await (this.#term?.over ?? this.#standing);
  }

  begin(): void {
    if (this.hasLeft) return;
    this.#standing = this.#stand();
    this.ended = Promise.all([this.#parts.after, this.#standing]).then(() => undefined);
  }

  /** Revokes the term and leaves the line. */
  stop(reason: RevokeReason, error: Error): void {
    const { agenda } = this.#parts;
    this.#leaving.abort(error);
    this.#watch.stop();
    if (this.#pause && agenda.remove(this.#pause)) this.#pause.run();
    this.#term?.end(reason, error);
  }

  /** Waits no longer for work of the term. */
  giveUp(): void {
    this.#term?.giveUp();
  }

  async #stand(): Promise<void> {
    await Promise.race([this.#parts.after, aborted(this.#leaving.signal)]);
    if (!this.hasLeft) this.#watch.start(this.leaseMs, async () => (this.isLeader() ? null : this.leader()));
    while (!this.hasLeft) {
      const lease = await this.#electedWith();
      if (lease) await this.#lead(lease);
      await this.#stayBack();
    }
  }

  /** Stands in line until elected. A store that is down sends us away, and it was published then. */
  async #electedWith(): Promise<Lease | undefined> {
    const { locks, election, mayLead } = this.#parts;
    const { leaseMs } = this;
    if (!mayLead()) return undefined;
    try {
      return await locks.standFor(election, { leaseMs, signal: this.#leaving.signal });
    } catch {
      return undefined;
    }
  }

  async #lead(lease: Lease): Promise<void> {
    const { locks, election, mayLead } = this.#parts;
    if (this.hasLeft || !mayLead()) {
      await lease[Symbol.asyncDispose]();
      return;
    }
    const term = new Term({ ...this.#parts, lease });
    this.#term = term;
    locks.events.emit('elected', { election, term: term.shown.number });
    this.#watch.learn(term.shown.number, locks.instance);
    await term.serve();
    this.#term = undefined;
  }

  /** Until it is over, or we leave. */
  async #stayBack(): Promise<void> {
    if (this.hasLeft) return;
    const { agenda, locks } = this.#parts;
    const atMs = locks.clock.monotonicMs() + stayBackMs();
    await new Promise<void>((run) => (this.#pause = agenda.add({ atMs, run })));
  }
}
