import { fixedWidth } from '../server-call.js';
import type { Ballot } from '../server-call.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

/** Another asker who has a vote. */
interface Rival {
  readonly holder: string;
  /** His first ballot. */
  readonly sinceUs: number;
  readonly remainingMs: number;
  /** He only claims a tick, and has not marked it. */
  readonly isClaiming: boolean;
}

/** What the servers know of the ticks of a key. */
export interface KnownTick {
  readonly tickMs: number;
  readonly attempt: number;
  readonly aliveUntilMs: number;
  readonly runner: string;
}

/** Whose first ballot is older than that does not contend any more: what he has is a grant, or left over from one. */
const MAX_CONTENTION_US = 1_500_000;
/** Time for those who give way to do so. */
const MIN_PAUSE_MS = 1;
/** Who gave way looks later than that, and not in step with others. */
const MIN_YIELD_PAUSE_MS = 4;
const MAX_PAUSE_MS = 50;

/** What the servers with a vote said to one asker in one round. */
export class VoteCount {
  /** Servers that have answered the question. */
  usableReplies = 0;
  /** Servers to whom the request came too late by what we knew of their clocks. */
  refusedReplies = 0;
  /** The newest token that is taken up somewhere. */
  newestTokenUs = 0;
  newestTick: KnownTick | undefined;
  readonly serverTimesMs: number[] = [];
  readonly #needed: number;
  readonly #maxFailures: number;
  /** Votes for the ballot. */
  #votes = 0;
  /** Votes with tokens that the asker was given before. */
  #otherTokens: string[] | undefined;
  #smallBallotReplies = 0;
  /** Servers that know that the tick is claimed. */
  #tickClaimedReplies = 0;
  #rivals: Rival[] | undefined;
  #heldForMs: number[] | undefined;

  constructor({ needed, maxFailures }: QuorumServers) {
    this.#needed = needed;
    this.#maxFailures = maxFailures;
  }

  countReply(reply: string, timeUs: number): void {
    if (reply === 'granted') {
      this.usableReplies += 1;
      this.#votes += 1;
    } else this.#parse(reply.split(' '), timeUs);
  }

  /** Whether the answer is certain, whatever the others say. */
  get isDecided(): boolean {
    return this.#votes >= this.#needed || this.#tickClaimedReplies >= this.#needed || this.isTaken;
  }

  /** Whether a majority holds for one other. */
  get isTaken(): boolean {
    return this.#rivals !== undefined && this.#isHeldByOne(this.#rivals);
  }

  /** The fencing token that a majority granted. */
  grantedToken(ballot: Ballot): bigint | undefined {
    if (this.#votes >= this.#needed) return BigInt(ballot.us);
    if (!this.#otherTokens) return undefined;
    const counts = new Map([[fixedWidth(ballot.us), this.#votes]]);
    for (const token of this.#otherTokens) counts.set(token, (counts.get(token) ?? 0) + 1);
    for (const [token, count] of counts) if (count >= this.#needed) return BigInt(token);
    return undefined;
  }

  /** Until a majority is free, as far as it was heard; 0 or less if one is now. */
  get remainingMs(): number {
    const leases = (this.#rivals ?? [])
      .map(({ remainingMs }) => remainingMs)
      .sort((one, other) => one - other);
    return leases[leases.length - this.#maxFailures - 1] ?? 0;
  }

  /** How long a majority will be held by runs that have marked their ticks. */
  get heldForMs(): number {
    const leases = [...(this.#heldForMs ?? [])].sort((one, other) => one - other);
    return leases[leases.length - this.#maxFailures - 1] ?? 0;
  }

  /** A majority would have granted a larger ballot. */
  get needsLargerBallot(): boolean {
    return this.#ownVotes + this.#smallBallotReplies >= this.#needed;
  }

  /** Of those who divide the votes, the first goes on and all others give way: so it is settled at the next look. */
  hasPriority(holder: string, sinceUs: number): boolean {
    return (
      this.#ownVotes > 0 && (this.#rivals ?? []).every((rival) => !comesBefore(rival, { holder, sinceUs }))
    );
  }

  /** How long to wait before the next look. */
  pauseMs(roundNumber: number, hasPriority: boolean): number {
    if (this.needsLargerBallot && roundNumber < 2) return 0;
    const shortestMs = hasPriority ? MIN_PAUSE_MS : MIN_YIELD_PAUSE_MS * (1 + Math.random());
    return Math.min(shortestMs * 2 ** roundNumber, MAX_PAUSE_MS * (1 + Math.random()));
  }

  get #ownVotes(): number {
    return this.#votes + (this.#otherTokens?.length ?? 0);
  }

  #isHeldByOne(rivals: readonly Rival[]): boolean {
    if (rivals.length < this.#needed) return false;
    return rivals.some(
      ({ holder }) => rivals.filter((rival) => rival.holder === holder).length >= this.#needed,
    );
  }

  /** `granted token …` (`=`: the ballot), `taken ms holder since newest claims …`, `behind newest …`, `seen ms …`; `…` tells of ticks. */
  #parse(columns: readonly string[], timeUs: number): void {
    const [kind, first = '', second = '', third = '', newest = '', claims, ...rest] = columns;
    this.usableReplies += 1;
    if (kind === 'granted') {
      if (first === '=') this.#votes += 1;
      else (this.#otherTokens ??= []).push(first);
      this.#recordTick(columns.slice(2), timeUs);
    } else if (kind === 'taken') {
      const rival = {
        holder: second,
        sinceUs: Number(third),
        remainingMs: Number(first),
        isClaiming: claims === '1',
      };
      (this.#rivals ??= []).push(rival);
      if (!rival.isClaiming) (this.#heldForMs ??= []).push(rival.remainingMs);
      this.#recordNewestToken(newest);
      this.#recordTick(rest, timeUs);
    } else if (kind === 'behind') {
      this.#smallBallotReplies += 1;
      this.#recordNewestToken(first);
      this.#recordTick(columns.slice(2), timeUs);
    } else if (kind === 'seen') {
      this.#tickClaimedReplies += 1;
      if (Number(first) > 0) (this.#heldForMs ??= []).push(Number(first));
      this.#recordTick(columns.slice(2), timeUs);
    } else {
      this.usableReplies -= 1;
      this.refusedReplies += 1;
    }
  }

  #recordNewestToken(newest: string): void {
    this.newestTokenUs = Math.max(this.newestTokenUs, Number(newest));
  }

  #recordTick([tick = '-', alive = '0', runner = '-']: readonly string[], timeUs: number): void {
    this.serverTimesMs.push(timeUs / 1_000);
    if (tick === '-') return;
    const knownTick = {
      tickMs: Number(tick.slice(0, 13)),
      attempt: Number(tick.slice(13)),
      aliveUntilMs: Number(alive) / 1_000,
      runner,
    };
    if (!this.newestTick || isNewer(knownTick, this.newestTick)) this.newestTick = knownTick;
  }
}

/** Attempt 0 says that a run of the tick has ended: nothing comes after that. */
function isNewer(one: KnownTick, other: KnownTick): boolean {
  if (one.tickMs !== other.tickMs) return one.tickMs > other.tickMs;
  const rank = (attempt: number) => (attempt === 0 ? Infinity : attempt);
  if (one.attempt !== other.attempt) return rank(one.attempt) > rank(other.attempt);
  return one.aliveUntilMs > other.aliveUntilMs;
}

function comesBefore(rival: Rival, { holder, sinceUs }: Pick<Rival, 'holder' | 'sinceUs'>): boolean {
  if (rival.sinceUs < sinceUs - MAX_CONTENTION_US) return false;
  return rival.sinceUs < sinceUs || (rival.sinceUs === sinceUs && rival.holder < holder);
}
