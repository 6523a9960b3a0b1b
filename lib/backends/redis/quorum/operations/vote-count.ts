import type { TickState } from '../../../../core/tick.js';
import { type Ballot, fixedWidth } from '../server-call.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import { medianOf } from '../servers/server-clocks.js';

/** Another acquisition that has a vote. */
interface Rival {
  readonly holder: string;
  /** Its first ballot. */
  readonly sinceUs: number;
  readonly remainingMs: number;
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

/** The token of a reply that votes for the ballot. */
const BALLOT = '=';
/** Most rounds see only votes for the ballot, so the other lists begin as this one. */
const NONE: readonly never[] = [];

/** Counts the replies of the servers with a vote to one acquisition in one round. */
export class VoteCount {
  /** The newest token that any server has in use. */
  newestTokenUs = 0;
  newestTick: KnownTick | undefined;
  /** The newest pause (`P`) or resumption (`R`) of the key that any server knows, with its version. */
  newestPause = NEVER_PAUSED;
  #serverTimesMs: readonly number[] = NONE;
  readonly #needed: number;
  readonly #maxFailures: number;
  /** Servers that have voted for the ballot. */
  #votes = 0;
  /** The tokens of other votes for this acquisition. */
  #otherTokens: readonly string[] = NONE;
  #rivals: readonly Rival[] = NONE;
  #heldForMs: readonly number[] = NONE;
  /** Servers that have granted a token which is not below the ballot. */
  #smallBallotReplies = 0;
  /** Servers that know the tick, or a newer one, as claimed. */
  #tickClaimedReplies = 0;
  /** Servers that refused the request as too early or too late, by our estimate of their clocks. */
  #refusedReplies = 0;

  constructor({ needed, maxFailures }: QuorumServers) {
    this.#needed = needed;
    this.#maxFailures = maxFailures;
  }

  /**
   * The replies of the vote script, where `…` is the newest tick: `granted token …` (`=`, or none: the ballot is the token),
   * `taken ms holder firstBallot newestToken mark …`, `behind newestToken …`, `seen ms …`, or `untimely`.
   */
  countReply(reply: string, timeUs: number): void {
    const [kind, first = '', ...rest] = reply.split(' ');
    switch (kind) {
      case 'granted':
        if (first === BALLOT || first === '') this.#votes += 1;
        else this.#otherTokens = [...this.#otherTokens, first];
        if (first !== '') this.#recordTick(rest, timeUs);
        break;
      case 'taken':
        this.#countRival(Number(first), rest);
        this.#recordTick(rest.slice(RIVAL_FIELDS), timeUs);
        break;
      case 'behind':
        this.#smallBallotReplies += 1;
        this.newestTokenUs = Math.max(this.newestTokenUs, Number(first));
        this.#recordTick(rest, timeUs);
        break;
      case 'seen':
        this.#tickClaimedReplies += 1;
        this.#heldForMs = [...this.#heldForMs, Number(first)];
        this.#recordTick(rest, timeUs);
        break;
      default:
        this.#refusedReplies += 1;
    }
  }

  #countRival(remainingMs: number, fields: readonly string[]): void {
    const [holder = '', firstBallot, newestToken, mark] = fields;
    this.#rivals = [...this.#rivals, { holder, sinceUs: Number(firstBallot), remainingMs }];
    // A claim that has not marked its tick yet may still fail.
    if (mark !== '1') this.#heldForMs = [...this.#heldForMs, remainingMs];
    this.newestTokenUs = Math.max(this.newestTokenUs, Number(newestToken));
  }

  /** Whether a majority has voted for or against. */
  get hasMajorityReplied(): boolean {
    return this.#usableReplies >= this.#needed;
  }

  /** Servers refused by their clocks, so that no majority is left. */
  get isRefused(): boolean {
    return !this.hasMajorityReplied && this.#refusedReplies > 0;
  }

  /** The replies that refused have corrected our estimate of the clocks, so it helps to retry at once. */
  get hasCorrectedClocks(): boolean {
    return !this.hasMajorityReplied && this.#usableReplies + this.#refusedReplies >= this.#needed;
  }

  /** Whether no further reply can change the outcome. */
  get isDecided(): boolean {
    return this.#votes >= this.#needed || this.#tickClaimedReplies >= this.#needed || this.isWonByRival;
  }

  /** Whether a majority has voted for one other holder. */
  get isWonByRival(): boolean {
    const votesOf = (holder: string) => this.#rivals.filter((rival) => rival.holder === holder).length;
    return this.#rivals.some(({ holder }) => votesOf(holder) >= this.#needed);
  }

  /** The fencing token for which a majority has voted; `undefined` if there is none. */
  grantedToken({ us }: Ballot): bigint | undefined {
    if (this.#votes >= this.#needed) return BigInt(us);
    const ballot = fixedWidth(us);
    const votesFor = (token: string) =>
      this.#otherTokens.filter((other) => other === token).length + (token === ballot ? this.#votes : 0);
    const granted = this.#otherTokens.find((token) => votesFor(token) >= this.#needed);
    return granted === undefined ? undefined : BigInt(granted);
  }

  /** How long until a majority is free, as far as the replies show; 0 or less if one is free now. */
  get remainingMs(): number {
    return this.#untilMajorityMs(this.#rivals.map(({ remainingMs }) => remainingMs));
  }

  /** The newest tick of the servers that replied, at the time of the median server. */
  get tickState(): TickState {
    const { newestTick, heldForMs } = this;
    const claimed = newestTick && { tickMs: newestTick.tickMs, attempt: newestTick.attempt };
    const aliveUntilMs = newestTick?.aliveUntilMs ?? 0;
    const isPaused = this.newestPause.startsWith('P');
    const nowMs = medianOf(this.#serverTimesMs);
    return { nowMs, claimed, heldForMs, aliveUntilMs, ...(isPaused && { isPaused }) };
  }

  /** How long until a majority is free of runs that have marked their ticks. */
  get heldForMs(): number {
    return this.#untilMajorityMs(this.#heldForMs);
  }

  /** Whether a majority would have voted for a larger ballot. */
  get needsLargerBallot(): boolean {
    return this.#ownVotes + this.#smallBallotReplies >= this.#needed;
  }

  /** Whether this acquisition came first among those that split the votes. It keeps its votes and the others release theirs. */
  hasPriority(holder: string, sinceUs: number): boolean {
    const isLater = (rival: Rival) =>
      rival.sinceUs < sinceUs - MAX_CONTENTION_US ||
      rival.sinceUs > sinceUs ||
      (rival.sinceUs === sinceUs && rival.holder >= holder);
    return this.#ownVotes > 0 && this.#rivals.every(isLater);
  }

  /** The pause before the next round. */
  pauseMs(roundNumber: number, hasPriority: boolean): number {
    if (this.needsLargerBallot && roundNumber < 2) return 0;
    const shortestMs = hasPriority ? MIN_PAUSE_MS : MIN_YIELD_PAUSE_MS * (1 + Math.random());
    return Math.min(shortestMs * 2 ** roundNumber, MAX_PAUSE_MS * (1 + Math.random()));
  }

  get #usableReplies(): number {
    return this.#ownVotes + this.#rivals.length + this.#smallBallotReplies + this.#tickClaimedReplies;
  }

  get #ownVotes(): number {
    return this.#votes + this.#otherTokens.length;
  }

  /** How long until a majority is free of these leases. */
  #untilMajorityMs(leasesMs: readonly number[]): number {
    const sorted = [...leasesMs].sort((one, other) => one - other);
    return sorted[sorted.length - this.#maxFailures - 1] ?? 0;
  }

  #recordTick(
    [tick = '-', alive = '0', runner = '-', pause = NEVER_PAUSED]: readonly string[],
    timeUs: number,
  ): void {
    this.#serverTimesMs = [...this.#serverTimesMs, timeUs / 1_000];
    // A server that knows no tick of the job may have its latest resumption.
    if (pauseVersionOf(pause) > pauseVersionOf(this.newestPause)) this.newestPause = pause;
    if (tick === '-') return;
    const tickMs = Number(tick.slice(0, 13));
    const known = { tickMs, attempt: Number(tick.slice(13)), aliveUntilMs: Number(alive) / 1_000, runner };
    if (!this.newestTick || isNewer(known, this.newestTick)) this.newestTick = known;
  }
}

/** How many fields a `taken` reply has between the rest of the lease and the newest tick. */
const RIVAL_FIELDS = 4;

/** Of a key that was never paused. */
const NEVER_PAUSED = '-';

export const pauseVersionOf = (pause: string) => Number(pause.slice(1));

/** Attempt 0 means that a run of the tick has ended, so no attempt is newer. */
function isNewer(one: KnownTick, other: KnownTick): boolean {
  if (one.tickMs !== other.tickMs) return one.tickMs > other.tickMs;
  const rank = (attempt: number) => (attempt === 0 ? Infinity : attempt);
  if (one.attempt !== other.attempt) return rank(one.attempt) > rank(other.attempt);
  return one.aliveUntilMs > other.aliveUntilMs;
}
