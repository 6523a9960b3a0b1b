import type { AcquireAnswer, TickClaim, TickRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { type TickVerdict, judgeTick } from '../../../core/tick-verdict.js';
import type { Contest, Quorum, RoundEnd } from './contest.js';
import { wide } from './node-call.js';
import { Poll } from './poll.js';
import { claimTerms, memoryOf } from './terms.js';
import type { Voter } from './voter.js';
import { type Voters, medianOf } from './voters.js';
import { Votes } from './votes.js';

/** What is about to be written down of a tick. */
interface Mark {
  readonly terms: string;
  readonly answer: AcquireAnswer;
}

/**
 * Claims a tick: takes the lock of its key, so that nothing changes meanwhile; judges by the newest that a majority knows of
 * ticks, which whoever marked one at a majority cannot have escaped; and marks the tick. Who meets another claimer asks again
 * until one of them has the tick, so that it is not lost because they all were in each other's way.
 */
export class TickAcquisition implements Contest {
  readonly key: string;
  readonly holder: string;
  answer: AcquireAnswer | undefined;
  newestUs = 0;
  readonly #tick: TickClaim;
  readonly #claimTerms: string;
  /** How long the servers remember the tick. */
  readonly #memoryMs: number;
  readonly #voters: Voters;
  readonly #votes: Votes;
  #poll: Poll;
  #mark: Mark | undefined;
  #marked = 0;
  #lost = 0;

  constructor(request: TickRequest, quorum: Quorum) {
    const { voters } = quorum;
    this.key = request.key;
    this.holder = request.holder;
    this.#tick = request.tick;
    this.#claimTerms = claimTerms(request, voters.quarantineMs);
    this.#memoryMs = memoryOf(request, voters.quarantineMs);
    this.#voters = voters;
    this.#votes = new Votes(request, quorum);
    this.#poll = new Poll(voters);
  }

  /** The newest tick of any majority counts, so the more the better. */
  get servers(): number {
    return this.#voters.everyone;
  }

  get terms(): string {
    return this.#mark?.terms ?? this.#claimTerms;
  }

  get isSettled(): boolean {
    const { needed, spare } = this.#voters;
    if (this.#mark) return this.#marked >= needed || this.#lost > spare;
    // All that can be had is wanted: the newest tick of a majority is what counts.
    return this.#poll.usable >= needed && this.#poll.isDecided;
  }

  hear(voter: Voter, told: string, timeUs: number): void {
    if (told === 'marked') this.#marked += 1;
    else if (told === 'lost') this.#lost += 1;
    else if (!this.#mark) {
      if (told.startsWith('granted')) this.#votes.add(voter);
      this.#poll.hear(told, timeUs);
    }
  }

  hearAside(voter: Voter, told: string): void {
    this.#votes.hearLate(voter);
    if (told.startsWith('granted')) this.#votes.add(voter);
  }

  hearNothing(voter: Voter, wasAsked: boolean): void {
    if (wasAsked) this.#votes.addDoubtful(voter);
  }

  conclude(end: RoundEnd): number | undefined {
    this.#votes.endRound(end);
    return this.#mark ? this.#concludeMark(this.#mark, end) : this.#concludeClaim(end);
  }

  #concludeClaim(end: RoundEnd): number | undefined {
    const poll = this.#poll;
    const { needed } = this.#voters;
    const fencingToken = poll.grantedToken(end.ballot);
    const isRefused = poll.usable < needed && poll.refusals > 0;
    this.newestUs = Math.max(this.newestUs, isRefused ? 0 : end.ballot.us, poll.newestUs);
    this.#poll = new Poll(this.#voters);
    // Too late to be marked in time: that would use the tick up.
    if (systemClock.monotonicMs() > end.sentAtMs + end.limitMs) return this.#again(SLOW_PAUSE_MS, end);
    if (poll.usable < needed) {
      const isPutRight = end.number === 0 && poll.usable + poll.refusals >= needed;
      if (isPutRight) return 0;
      // Slow servers are asked again: a claim that is given up may cost everybody the tick.
      if (this.#voters.voting >= needed) return this.#again(SLOW_PAUSE_MS, end);
      return this.#end(this.#voters.doubt(end.limitMs, end.wasAsked));
    }
    const nowMs = medianOf(poll.times);
    const verdict = this.#judge(poll, nowMs);
    if (verdict.kind !== 'grant' && verdict.kind !== 'register') return this.#end(verdict);
    if (fencingToken !== undefined) {
      this.#mark = this.#markFor(verdict, { fencingToken, nowMs });
      return 0;
    }
    const goesOn = poll.goesOn(this.holder, end.ballot.firstUs);
    if (!goesOn && !poll.needsMore) this.#votes.giveBack();
    return this.#again(poll.pauseMs(Math.min(end.number, MOST_DOUBLINGS), goesOn), end);
  }

  #judge(poll: Poll, nowMs: number): TickVerdict {
    const claimed = poll.newestTick;
    // Marked before, when the answer was lost.
    if (claimed?.runner === this.holder && claimed.attempt > 0)
      return { kind: 'grant', attempt: claimed.attempt };
    const aliveUntilMs = claimed?.aliveUntilMs ?? 0;
    return judgeTick(this.#tick, { claimed, heldForMs: poll.heldForMs, aliveUntilMs, nowMs });
  }

  #markFor(
    verdict: Extract<TickVerdict, { kind: 'grant' | 'register' }>,
    { fencingToken, nowMs }: { fencingToken: bigint; nowMs: number },
  ): Mark {
    const isGrant = verdict.kind === 'grant';
    const tickUs =
      (isGrant ? this.#tick.tickMs : Math.floor(nowMs)) * 1_000 + (isGrant ? verdict.attempt : 0);
    return {
      // In three digits behind the ms stands the attempt.
      terms: `mark ${wide(tickUs)} ${this.#memoryMs} ${isGrant ? 0 : 1}`,
      answer: isGrant
        ? { kind: 'granted', fencingToken, attempt: verdict.attempt }
        : { kind: 'refused', reason: 'registered', aheadMs: verdict.aheadMs },
    };
  }

  #concludeMark({ answer }: Mark, end: RoundEnd): number | undefined {
    if (this.#marked >= this.#voters.needed) return this.#end(answer);
    const wasLost = this.#lost > this.#voters.spare;
    this.#mark = undefined;
    this.#marked = 0;
    this.#lost = 0;
    // Asked anew: it may be marked at a majority all the same, or have been too late for it.
    return wasLost || end.number < MOST_DOUBLINGS
      ? this.#again(1, end)
      : this.#end(this.#voters.doubt(end.limitMs));
  }

  #again(pauseMs: number, { endsAtMs, limitMs }: RoundEnd): number | undefined {
    if (systemClock.monotonicMs() + pauseMs < endsAtMs) return pauseMs;
    return this.#end(this.#voters.doubt(limitMs));
  }

  #end(answer: AcquireAnswer): number | undefined {
    this.answer = answer;
    if (answer.kind === 'granted') this.#votes.won();
    else this.#votes.lost();
    return undefined;
  }
}

const MOST_DOUBLINGS = 6;
const SLOW_PAUSE_MS = 20;
