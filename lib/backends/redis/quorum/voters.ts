import { atMost } from '../../../core/at-most.js';
import { type ServerNews, type Unknown, connectionLost, neverSent, unknown } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { NoAnswerInTime } from '../../../core/no-answer-in-time.js';
import type { RedisSource } from '../connection.js';
import { ServerList } from './server-list.js';
import { Voter } from './voter.js';

interface VotersParts {
  readonly sources: readonly RedisSource[];
  readonly maxLeaseMs: number;
  readonly channel: string;
}

/** A second of uptime is told as a whole one, and clocks of two machines run at slightly different speeds. */
const QUARANTINE_MARGIN_MS = 2_000;
const DRIFT_RATIO = 0.01;
/** The newest ballot may be ahead of the servers' clocks by this part of what they allow. */
const AHEAD_RATIO = 0.1;

/** All servers of a quorum. */
export class Voters {
  readonly all: readonly Voter[];
  /** The same in bits. */
  readonly everyone: number;
  /** So many votes are a majority. */
  readonly needed: number;
  /** How long a server remembers the tokens of a key after its lease, and is not trusted if it may have forgotten. */
  readonly quarantineMs: number;
  readonly #boundUs: number;
  readonly #list: ServerList;
  #newestUs = 0;
  readonly #listeners = new Set<(news: ServerNews) => void>();

  constructor({ sources, maxLeaseMs, channel }: VotersParts) {
    this.everyone = 2 ** sources.length - 1;
    this.needed = Math.floor(sources.length / 2) + 1;
    this.quarantineMs = Math.ceil(maxLeaseMs * (1 + DRIFT_RATIO)) + QUARANTINE_MARGIN_MS;
    // Twice this is less than the quarantine: what a server forgot is then too old to be asked for again.
    const boundUs = maxLeaseMs * 500;
    this.#boundUs = boundUs;
    const onGreeting = () => {
      this.#findTwins();
      this.#list.changed();
    };
    const onNews = (voter: Voter, fault: string | undefined) => this.#tell(voter, fault);
    const shared = { maxLeaseMs, quarantineMs: this.quarantineMs, boundUs, channel, onGreeting, onNews };
    this.all = sources.map((source, index) => new Voter({ ...shared, source, index }));
    this.#list = new ServerList(this.all, this.quarantineMs);
  }

  /** How many servers may fail. */
  get spare(): number {
    return this.all.length - this.needed;
  }

  /** The majority that is likely to answer first, in bits; everyone, if there is none. */
  get quickest(): number {
    const nowMs = systemClock.monotonicMs();
    let bits = 0;
    let missing = this.needed;
    for (const wantsQuick of [true, false]) {
      for (const voter of this.all) {
        if (voter.isQuick(nowMs) !== wantsQuick || !voter.mayVote(nowMs)) continue;
        bits |= voter.bit;
        missing -= 1;
        if (missing === 0) return bits;
      }
    }
    return this.everyone;
  }

  get voting(): number {
    return this.all.filter((voter) => voter.hasVote).length;
  }

  /**
   * Settles once each server has been tried and the list is confirmed. Both are waited for `shortMs`, or for `limitMs` as long
   * as there is no majority without that; and a server that does not even refuse only once. `undefined`: there is nothing to wait for.
   */
  opened({ shortMs, limitMs }: { shortMs: number; limitMs: number }): Promise<void> | undefined {
    let openings: Promise<void>[] | undefined;
    for (const voter of this.all) {
      const opening = voter.open();
      if (opening && !this.#canDoWithout(voter)) (openings ??= []).push(opening);
    }
    if (!openings && this.#isConfirmed()) return undefined;
    return this.#settled(openings ?? [], { shortMs, limitMs });
  }

  #canDoWithout(voter: Voter): boolean {
    return voter.isConnectingAnew && this.voting >= this.needed;
  }

  /** Hears of servers that go and come back. */
  listen(listener: (news: ServerNews) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#list.close();
    for (const voter of this.all) voter.close();
  }

  /**
   * The fencing token to ask for: the time of the median server, so that one whose clock is wrong moves nobody, and more
   * than that where the servers are known to have granted a larger one.
   */
  ballotUs(moreThanUs: number): number {
    const nowMs = systemClock.monotonicMs();
    const times: number[] = [];
    for (const { clock } of this.all) if (clock.isKnown) times.push(clock.latestUs(nowMs));
    const nowUs = Math.floor(medianOf(times));
    // So far ahead only if the clocks were set back: servers would soon refuse what follows it.
    const isAhead = this.#newestUs - nowUs > this.#boundUs * AHEAD_RATIO;
    this.#newestUs = isAhead ? nowUs : Math.max(this.#newestUs + 1, nowUs);
    return Math.max(this.#newestUs, moreThanUs + 1);
  }

  /** Why no majority answered. */
  doubt(limitMs: number, wasAsked = true): Unknown {
    const hopeless = this.all.find(({ configFault }) => configFault)?.configFault;
    const faults = this.all.flatMap(({ fault, name }) => (fault ? [`${name} ${fault}`] : []));
    const told =
      `of ${this.all.length} Redis servers ${this.needed} must agree, but ` +
      (faults.join('; ') || 'requests reached them too late, or their clocks are far apart');
    const mayAnswer =
      this.all.filter((voter) => voter.hasVote || voter.isConnectingAnew).length >= this.needed;
    const cause = hopeless ?? (mayAnswer ? new TooFewAnswered(limitMs, told) : new Error(told));
    if (!wasAsked) return neverSent(cause);
    return mayAnswer && this.all.some((voter) => voter.isConnectingAnew)
      ? connectionLost(cause)
      : unknown(cause);
  }

  /** Of those who are one server the first has its vote, in whatever order they come and go. */
  #findTwins(): void {
    for (const voter of this.all) {
      const { runId, index } = voter;
      const isTwin = (other: Voter) => other.index < index && other.runId === runId;
      voter.setTwin(runId === undefined ? undefined : this.all.find(isTwin));
    }
  }

  #tell({ name }: Voter, fault: string | undefined): void {
    const counts = { voting: this.voting, needed: this.needed, servers: this.all.length };
    const news = { server: name, ...(fault !== undefined && { fault }), ...counts };
    for (const listener of this.#listeners) listener(news);
  }

  async #settled(
    openings: readonly Promise<void>[],
    { shortMs, limitMs }: { shortMs: number; limitMs: number },
  ): Promise<void> {
    const all = Promise.all(openings);
    const wereTried = await atMost(systemClock, shortMs, all, { awaited: true });
    await this.#confirmed(shortMs);
    if (this.voting < this.needed) {
      const restMs = limitMs - shortMs;
      const rest = all.then(() => this.#confirmed(restMs));
      await atMost(systemClock, restMs, rest, { awaited: true });
    }
    if (wereTried) return;
    for (const voter of this.all) voter.settleOpening();
  }

  async #confirmed(limitMs: number): Promise<void> {
    if (this.#isConfirmed()) return;
    await atMost(systemClock, limitMs, this.#list.confirm(), { awaited: true });
  }

  #isConfirmed(): boolean {
    if (!this.#list.isConfirmed) return false;
    return !this.#list.isConfirming || this.voting >= this.needed;
  }
}

/** Servers that are there, but silent or slow: no reason to leave the line. */
class TooFewAnswered extends NoAnswerInTime {
  constructor(limitMs: number, told: string) {
    super(limitMs);
    this.message = told;
  }
}

export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[(sorted.length - 1) >> 1] ?? 0;
}

export function countOf(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
