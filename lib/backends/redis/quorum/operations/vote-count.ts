import type { TickState } from '../../../../core/backend.js';
import { type Ballot, fixedWidth } from '../server-call.js';
import { type QuorumServers, medianOf } from '../servers/quorum-servers.js';

/** Another acquisition that has a vote. */
interface Rival {
  readonly holder: string;
  /** Its first ballot. */
  readonly sinceUs: number;
  readonly remainingMs: number;
  /** It claims a tick and has not marked it yet. */
  readonly isClaiming: boolean;
}

/** What the servers know of the ticks of a key. */
export interface KnownTick {
  readonly tickMs: number;
  readonly attempt: number;
  readonly aliveUntilMs: number;
  readonly runner: string;
}

/** A rival with an older first ballot is no longer acquiring: its vote is a lock, or left over from one. */
const MAX_CONTENTION_US = 1_500_000;
/** The pause of the acquisition with priority, so that the others can release their votes. */
const MIN_PAUSE_MS = 1;
/** The pause of the others: longer, and randomised so that they do not retry in step. */
const MIN_YIELD_PAUSE_MS = 4;
const MAX_PAUSE_MS = 50;

/** Counts the replies of the servers with a vote to one acquisition in one round. */
export class VoteCount {
  /** Servers that have voted for or against. */
  usableReplies = 0;
  /** Servers that refused the request as too early or too late, by our estimate of their clocks. */
  refusedReplies = 0;
  /** The newest token that any server has in use. */
  newestTokenUs = 0;
  newestTick: KnownTick | undefined;
  readonly #serverTimesMs: number[] = [];
  readonly #needed: number;
  readonly #maxFailures: number;
  /** Votes for the ballot. */
  #votes = 0;
  /** Votes with the tokens of earlier ballots. */
  #otherTokens: string[] | undefined;
  /** Servers that have granted a token which is not below the ballot. */
  #smallBallotReplies = 0;
  /** Servers that know the tick, or a newer one, as claimed. */
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

  /** Whether no further reply can change the outcome. */
  get isDecided(): boolean {
    return this.#votes >= this.#needed || this.#tickClaimedReplies >= this.#needed || this.isTaken;
  }

  /** Whether a majority has voted for one other holder. */
  get isTaken(): boolean {
    return this.#rivals !== undefined && this.#isHeldByOne(this.#rivals);
  }

  /** The fencing token for which a majority has voted; `undefined` if there is none. */
  grantedToken(ballot: Ballot): bigint | undefined {
    if (this.#votes >= this.#needed) return BigInt(ballot.us);
    if (!this.#otherTokens) return undefined;
    const counts = new Map([[fixedWidth(ballot.us), this.#votes]]);
    for (const token of this.#otherTokens) counts.set(token, (counts.get(token) ?? 0) + 1);
    for (const [token, count] of counts) if (count >= this.#needed) return BigInt(token);
    return undefined;
  }

  /** How long until a majority is free, as far as the replies show; 0 or less if one is free now. */
  get remainingMs(): number {
    const leases = (this.#rivals ?? [])
      .map(({ remainingMs }) => remainingMs)
      .sort((one, other) => one - other);
    return leases[leases.length - this.#maxFailures - 1] ?? 0;
  }

  /** The newest tick of the servers that replied, at the time of the median server. */
  get tickState(): TickState {
    const { newestTick, heldForMs } = this;
    const claimed = newestTick && { tickMs: newestTick.tickMs, attempt: newestTick.attempt };
    const aliveUntilMs = newestTick?.aliveUntilMs ?? 0;
    return { nowMs: medianOf(this.#serverTimesMs), claimed, heldForMs, aliveUntilMs };
  }

  /** How long until a majority is free of runs that have marked their ticks. */
  get heldForMs(): number {
    const leases = [...(this.#heldForMs ?? [])].sort((one, other) => one - other);
    return leases[leases.length - this.#maxFailures - 1] ?? 0;
  }

  /** Whether a majority would have voted for a larger ballot. */
  get needsLargerBallot(): boolean {
    return this.#ownVotes + this.#smallBallotReplies >= this.#needed;
  }

  /** Whether this acquisition came first among those that split the votes. It keeps its votes and the others release theirs. */
  hasPriority(holder: string, sinceUs: number): boolean {
    return (
      this.#ownVotes > 0 && (this.#rivals ?? []).every((rival) => !comesBefore(rival, { holder, sinceUs }))
    );
  }

  /** The pause before the next round. */
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

  /**
   * The replies of the vote script, where `…` is the newest tick: `granted token …` (`=`: the ballot is the token),
   * `taken ms holder firstBallot newestToken mark …`, `behind newestToken …`, `seen ms …`, or `untimely`.
   */
  #parse(columns: readonly string[], timeUs: number): void {
    const [kind, first = '', second = '', third = '', newest = '', mark, ...rest] = columns;
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
        isClaiming: mark === '1',
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
    this.#serverTimesMs.push(timeUs / 1_000);
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

/** Attempt 0 means that a run of the tick has ended, so no attempt is newer. */
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
