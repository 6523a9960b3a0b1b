import { wide } from './node-call.js';
import type { Ballot } from './node-call.js';
import type { Voters } from './voters.js';

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
export interface SeenTick {
  readonly tickMs: number;
  readonly attempt: number;
  readonly aliveUntilMs: number;
  readonly runner: string;
}

/** Whose first ballot is older than that does not contend any more: what he has is a grant, or left over from one. */
const LONGEST_CONTEST_US = 1_500_000;
/** Time for those who give way to do so. */
const SHORTEST_PAUSE_MS = 1;
/** Who gave way looks later than that, and not in step with others. */
const SHORTEST_DETOUR_MS = 4;
const LONGEST_PAUSE_MS = 50;

/** What the servers with a vote said to one asker in one round. */
export class Poll {
  /** Servers that have answered the question. */
  usable = 0;
  /** Servers to whom the request came too late by what we knew of their clocks. */
  refusals = 0;
  /** The newest token that is taken up somewhere. */
  newestUs = 0;
  newestTick: SeenTick | undefined;
  readonly times: number[] = [];
  readonly #needed: number;
  readonly #spare: number;
  /** Votes for the ballot. */
  #votes = 0;
  /** Votes with tokens that the asker was given before. */
  #otherTokens: string[] | undefined;
  #behind = 0;
  /** Servers that know that the tick is claimed. */
  #seen = 0;
  #rivals: Rival[] | undefined;
  #heldForMs: number[] | undefined;

  constructor({ needed, spare }: Voters) {
    this.#needed = needed;
    this.#spare = spare;
  }

  hear(told: string, timeUs: number): void {
    if (told === 'granted') {
      this.usable += 1;
      this.#votes += 1;
    } else this.#read(told.split(' '), timeUs);
  }

  /** Whether the answer is certain, whatever the others say. */
  get isDecided(): boolean {
    return this.#votes >= this.#needed || this.#seen >= this.#needed || this.isTaken;
  }

  /** Whether a majority holds for one other. */
  get isTaken(): boolean {
    return this.#rivals !== undefined && this.#isHeldByOne(this.#rivals);
  }

  /** The fencing token that a majority granted. */
  grantedToken(ballot: Ballot): bigint | undefined {
    if (this.#votes >= this.#needed) return BigInt(ballot.us);
    if (!this.#otherTokens) return undefined;
    const counts = new Map([[wide(ballot.us), this.#votes]]);
    for (const token of this.#otherTokens) counts.set(token, (counts.get(token) ?? 0) + 1);
    for (const [token, count] of counts) if (count >= this.#needed) return BigInt(token);
    return undefined;
  }

  /** Until a majority is free, as far as it was heard; 0 or less if one is now. */
  get remainingMs(): number {
    const leases = (this.#rivals ?? [])
      .map(({ remainingMs }) => remainingMs)
      .sort((one, other) => one - other);
    return leases[leases.length - this.#spare - 1] ?? 0;
  }

  /** How long a majority will be held by runs that have marked their ticks. */
  get heldForMs(): number {
    const leases = [...(this.#heldForMs ?? [])].sort((one, other) => one - other);
    return leases[leases.length - this.#spare - 1] ?? 0;
  }

  /** A majority would have granted a larger ballot. */
  get needsMore(): boolean {
    return this.#ours + this.#behind >= this.#needed;
  }

  /** Of those who divide the votes, the first goes on and all others give way: so it is settled at the next look. */
  goesOn(holder: string, sinceUs: number): boolean {
    return this.#ours > 0 && (this.#rivals ?? []).every((rival) => !comesBefore(rival, { holder, sinceUs }));
  }

  /** How long to wait before the next look. */
  pauseMs(number: number, goesOn: boolean): number {
    if (this.needsMore && number < 2) return 0;
    const shortestMs = goesOn ? SHORTEST_PAUSE_MS : SHORTEST_DETOUR_MS * (1 + Math.random());
    return Math.min(shortestMs * 2 ** number, LONGEST_PAUSE_MS * (1 + Math.random()));
  }

  get #ours(): number {
    return this.#votes + (this.#otherTokens?.length ?? 0);
  }

  #isHeldByOne(rivals: readonly Rival[]): boolean {
    if (rivals.length < this.#needed) return false;
    return rivals.some(
      ({ holder }) => rivals.filter((rival) => rival.holder === holder).length >= this.#needed,
    );
  }

  /** `granted token …` (`=`: the ballot), `taken ms holder since newest claims …`, `behind newest …`, `seen ms …`; `…` tells of ticks. */
  #read(words: readonly string[], timeUs: number): void {
    const [kind, first = '', second = '', third = '', newest = '', claims, ...rest] = words;
    this.usable += 1;
    if (kind === 'granted') {
      if (first === '=') this.#votes += 1;
      else (this.#otherTokens ??= []).push(first);
      this.#see(words.slice(2), timeUs);
    } else if (kind === 'taken') {
      const rival = {
        holder: second,
        sinceUs: Number(third),
        remainingMs: Number(first),
        isClaiming: claims === '1',
      };
      (this.#rivals ??= []).push(rival);
      if (!rival.isClaiming) (this.#heldForMs ??= []).push(rival.remainingMs);
      this.#note(newest);
      this.#see(rest, timeUs);
    } else if (kind === 'behind') {
      this.#behind += 1;
      this.#note(first);
      this.#see(words.slice(2), timeUs);
    } else if (kind === 'seen') {
      this.#seen += 1;
      if (Number(first) > 0) (this.#heldForMs ??= []).push(Number(first));
      this.#see(words.slice(2), timeUs);
    } else {
      this.usable -= 1;
      this.refusals += 1;
    }
  }

  #note(newest: string): void {
    this.newestUs = Math.max(this.newestUs, Number(newest));
  }

  #see([tick = '-', alive = '0', runner = '-']: readonly string[], timeUs: number): void {
    this.times.push(timeUs / 1_000);
    if (tick === '-') return;
    const seen = {
      tickMs: Number(tick.slice(0, 13)),
      attempt: Number(tick.slice(13)),
      aliveUntilMs: Number(alive) / 1_000,
      runner,
    };
    if (!this.newestTick || isNewer(seen, this.newestTick)) this.newestTick = seen;
  }
}

/** Attempt 0 says that a run of the tick has ended: nothing comes after that. */
function isNewer(one: SeenTick, other: SeenTick): boolean {
  if (one.tickMs !== other.tickMs) return one.tickMs > other.tickMs;
  const rank = (attempt: number) => (attempt === 0 ? Infinity : attempt);
  if (one.attempt !== other.attempt) return rank(one.attempt) > rank(other.attempt);
  return one.aliveUntilMs > other.aliveUntilMs;
}

function comesBefore(rival: Rival, { holder, sinceUs }: Pick<Rival, 'holder' | 'sinceUs'>): boolean {
  if (rival.sinceUs < sinceUs - LONGEST_CONTEST_US) return false;
  return rival.sinceUs < sinceUs || (rival.sinceUs === sinceUs && rival.holder < holder);
}
