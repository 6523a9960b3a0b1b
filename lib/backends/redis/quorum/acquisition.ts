import type { AcquireAnswer, AcquireRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { Contest, Quorum, RoundEnd } from './contest.js';
import type { AcquireTerms } from './node-call.js';
import { Poll } from './poll.js';
import type { Spread } from './spread.js';
import type { Voter } from './voter.js';
import type { Voters } from './voters.js';
import { Votes } from './votes.js';

/** Who met nothing but others in the same position asks again soon. */
const SHORT_WHILE_MS = 2;

/** How a lock is asked for at first. */
interface Plan {
  readonly terms: AcquireTerms;
  readonly servers: number;
}

/** Asks for a lock. */
export class Acquisition implements Contest {
  readonly key: string;
  readonly holder: string;
  readonly terms: AcquireTerms;
  /** The quickest majority; everyone, if that leaves it open. */
  servers: number;
  readonly #votes: Votes;
  answer: AcquireAnswer | undefined;
  newestUs = 0;
  readonly #voters: Voters;
  readonly #spread: Spread;
  #poll: Poll;

  constructor(request: AcquireRequest, { terms, servers }: Plan, quorum: Quorum) {
    const { voters, spread } = quorum;
    this.key = request.key;
    this.holder = request.holder;
    this.terms = terms;
    this.#votes = new Votes(request, quorum, request.againWithinMs);
    this.#voters = voters;
    this.#spread = spread;
    this.servers = servers;
    this.#poll = new Poll(voters);
  }

  get isSettled(): boolean {
    return this.#poll.isDecided;
  }

  hear(voter: Voter, told: string, timeUs: number): void {
    if (told.startsWith('granted')) this.#votes.add(voter);
    this.#poll.hear(told, timeUs);
  }

  hearAside(voter: Voter, told: string): void {
    this.#votes.hearLate(voter);
    if (told.startsWith('granted')) this.#votes.add(voter);
  }

  hearNothing(voter: Voter, wasAsked: boolean): void {
    if (wasAsked) this.#votes.addDoubtful(voter);
  }

  conclude(end: RoundEnd): number | undefined {
    const { number, ballot, sentAtMs, endsAtMs, limitMs, wasAsked, unasked } = end;
    const { key, holder, terms } = this;
    const poll = this.#poll;
    this.#votes.endRound(end);
    const { needed } = this.#voters;
    const fencingToken = poll.grantedToken(ballot);
    if (fencingToken !== undefined) {
      const isBare = unasked !== 0 && fencingToken === BigInt(ballot.us);
      if (isBare) this.#spread.add({ key, holder, terms, ballot, unasked, sentAtMs });
      return this.#end({ kind: 'granted', fencingToken });
    }
    if (poll.isTaken) return this.#end({ kind: 'taken', remainingMs: poll.remainingMs });
    this.newestUs = Math.max(this.newestUs, poll.newestUs);
    this.#poll = new Poll(this.#voters);
    this.servers = this.#voters.everyone;
    if (poll.usable < needed) {
      // By an idea of the servers' clocks that their answers have put right.
      const isPutRight = number === 0 && poll.usable + poll.refusals >= needed;
      return isPutRight ? 0 : this.#end(this.#voters.doubt(limitMs, wasAsked));
    }
    // Not above: a ballot that the servers refuse as too far ahead is none to go on from.
    this.newestUs = Math.max(this.newestUs, ballot.us);
    const goesOn = poll.goesOn(holder, ballot.firstUs);
    const pauseMs = poll.pauseMs(number, goesOn);
    if (systemClock.monotonicMs() + pauseMs >= endsAtMs) {
      return this.#end({ kind: 'taken', remainingMs: Math.max(poll.remainingMs, SHORT_WHILE_MS) });
    }
    if (!goesOn && !poll.needsMore) this.#votes.giveBack();
    return pauseMs;
  }

  #end(answer: AcquireAnswer): number | undefined {
    this.answer = answer;
    if (answer.kind === 'granted') this.#votes.won();
    else this.#votes.lost();
    return undefined;
  }
}
