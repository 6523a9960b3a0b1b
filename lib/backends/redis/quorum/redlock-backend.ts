import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type Freed,
  type LockBackend,
  type LockRecord,
  type ReleaseAnswer,
  type RenewAnswer,
  type Requests,
  type ServerNews,
} from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { delay } from '../../../core/real-time.js';
import { keyPrefixOf } from '../connection.js';
import { Acquisition } from './acquisition.js';
import type { Contest, Quorum } from './contest.js';
import { GivingBack } from './giving-back.js';
import { LateVotes } from './late-votes.js';
import { forceRelease, inspect } from './look.js';
import type { AcquireTerms } from './node-call.js';
import { QuorumCalls, channelFor } from './quorum-calls.js';
import { QuorumNotes } from './quorum-notes.js';
import {
  type RedlockOptions,
  type ResolvedRedlockOptions,
  resolveRedlockOptions,
} from './redlock-options.js';
import { rejoin } from './rejoin.js';
import { Renewal } from './renewal.js';
import { Round } from './round.js';
import { Spread } from './spread.js';
import { acquireTerms, haveSameTerms } from './terms.js';
import { TickAcquisition } from './tick-acquisition.js';
import { Voters } from './voters.js';

/** More in one call would keep the servers from their other clients for too long. */
const MOST_AT_ONCE = 64;
/** Nobody waits for renewals. */
const MOST_RENEWALS_AT_ONCE = 200;
const SHORTEST_LIMIT_MS = 100;
/** A server must have answered within this part of a lease. */
const LIMIT_PER_LEASE = 0.1;

/**
 * Locks on a majority of independent Redis servers (>= 6.2): they are there, and nobody else gets them, as long as a
 * majority is up and keeps what it acknowledged. A server that restarts without that has no vote until every lease is over
 * that it may have forgotten.
 *
 * There is no line on a quorum: who asks first after a release is served. Fencing tokens are ballots in µs of the servers'
 * clocks, and grow from grant to grant whatever becomes of a minority.
 *
 * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
 */
export class RedlockBackend implements LockBackend {
  readonly name = 'redlock';
  /** A server that restarts may forget a lock, and is kept from voting only as long as the longest lease lasts. */
  readonly maxLeaseMs: number;
  readonly #options: ResolvedRedlockOptions;
  readonly #voters: Voters;
  readonly #calls: QuorumCalls;
  readonly #notes: QuorumNotes;
  readonly #quorum: Quorum;

  constructor(options: RedlockOptions) {
    this.#options = resolveRedlockOptions(options);
    const { sources, maxLeaseMs } = this.#options;
    const channel = channelFor(sources[0] ? keyPrefixOf(sources[0]) : '');
    this.maxLeaseMs = maxLeaseMs;
    this.#voters = new Voters({ sources, maxLeaseMs, channel });
    this.#calls = new QuorumCalls(sources, { needed: this.#voters.needed, channel });
    this.#notes = new QuorumNotes(this.#voters);
    const late = new LateVotes();
    this.#quorum = { voters: this.#voters, spread: new Spread(this.#voters, late), late };
  }

  async exchange({ release = [], renew = [], acquire = [] }: Requests, limitMs: number): Promise<Answers> {
    this.#calls.open();
    const { quarantineMs } = this.#voters;
    const releasing = release.map((request) => new GivingBack(request, this.#quorum));
    const renewing = renew.map((request) => {
      const terms = `renew ${request.leaseMs} ${request.leaseMs + quarantineMs}`;
      return new Renewal(request, terms, this.#quorum);
    });
    const acquiring = this.#acquisitions(acquire);
    const others: Contest[] = [...releasing, ...acquiring];
    const limits = { limitMs, serverLimitMs: this.#serverLimitMs([...renew, ...acquire], limitMs) };
    await Promise.all([
      ...chunks(others, MOST_AT_ONCE).map((some) => this.#settle(some, limits)),
      ...chunks(renewing, MOST_RENEWALS_AT_ONCE).map((some) => this.#renew(some, limits)),
    ]);
    return {
      release: releasing.map(answerOf<ReleaseAnswer>),
      renew: renewing.map(answerOf<RenewAnswer>),
      acquire: acquiring.map((one, index) => this.#called(acquire[index], answerOf(one))),
    };
  }

  async inspect(key: string, limitMs: number): Promise<LockRecord | null> {
    const shortMs = await this.#opened(limitMs);
    return inspect(this.#voters, key, shortMs);
  }

  async forceRelease(key: string, fencingToken: bigint, limitMs: number): Promise<boolean> {
    const shortMs = await this.#opened(limitMs);
    return forceRelease(this.#voters, key, fencingToken, shortMs);
  }

  async note(key: string, text: string, limitMs: number): Promise<void> {
    const shortMs = await this.#opened(limitMs);
    await this.#notes.add(key, text, shortMs);
  }

  async notes(key: string, limitMs: number): Promise<readonly string[]> {
    const shortMs = await this.#opened(limitMs);
    return this.#notes.read(key, shortMs);
  }

  onFreed(listener: (freed: Freed) => void): () => void {
    return this.#calls.listen(listener);
  }

  onServerNews(listener: (news: ServerNews) => void): () => void {
    return this.#voters.listen(listener);
  }

  /** Rejects also while too few servers have a vote, and says why. */
  async check(limitMs: number): Promise<void> {
    await this.#opened(limitMs);
    const hopeless = this.#voters.all.find(({ configFault }) => configFault)?.configFault;
    if (hopeless) throw hopeless;
    if (this.#voters.voting < this.#voters.needed) throw this.#voters.doubt(limitMs).cause;
  }

  close(): Promise<void> {
    this.#quorum.spread.close();
    this.#voters.close();
    this.#calls.close();
    return Promise.resolve();
  }

  #called(request: AcquireRequest | undefined, answer: AcquireAnswer): AcquireAnswer {
    if (answer.kind !== 'taken' || !request?.againWithinMs) return answer;
    this.#calls.expect(request);
    return this.#calls.areHeard ? { ...answer, isCalled: true } : answer;
  }

  /** Waits for the first attempts to connect; answers how long a server may take. */
  async #opened(limitMs: number): Promise<number> {
    const shortMs = Math.min(limitMs, this.#options.serverLimitMs);
    await this.#voters.opened({ shortMs, limitMs });
    return shortMs;
  }

  #serverLimitMs(leases: readonly { readonly leaseMs: number }[], limitMs: number): number {
    let shortestMs = Infinity;
    for (const { leaseMs } of leases) shortestMs = Math.min(shortestMs, leaseMs);
    const forLeaseMs = Math.max(shortestMs * LIMIT_PER_LEASE, SHORTEST_LIMIT_MS);
    return Math.min(limitMs, this.#options.serverLimitMs, forLeaseMs);
  }

  #acquisitions(acquire: readonly AcquireRequest[]): readonly (Acquisition | TickAcquisition)[] {
    const { quarantineMs } = this.#voters;
    if (acquire.length === 0) return [];
    const servers = this.#voters.quickest;
    let last: AcquireRequest | undefined;
    let terms: AcquireTerms | undefined;
    return acquire.map((request) => {
      const { tick } = request;
      if (tick) return new TickAcquisition({ ...request, tick }, this.#quorum);
      // Those of one process mostly want the same, and share the text that says so.
      if (!last || !terms || !haveSameTerms(last, request)) terms = acquireTerms(request, quarantineMs);
      last = request;
      return new Acquisition(request, { terms, servers }, this.#quorum);
    });
  }

  async #renew(renewals: readonly Renewal[], limits: Limits): Promise<void> {
    const sentAtMs = systemClock.monotonicMs();
    await this.#settle(renewals, limits, () => void rejoin(this.#quorum, renewals, sentAtMs));
  }

  /** Round by round, until each of them has its answer. */
  async #settle(contests: readonly Contest[], { limitMs, serverLimitMs }: Limits, onAllHeard?: () => void) {
    const voters = this.#voters;
    const startedAtMs = systemClock.monotonicMs();
    const opening = voters.opened({ shortMs: serverLimitMs, limitMs: Math.max(limitMs - serverLimitMs, 0) });
    if (opening) await opening;
    let open = contests;
    let firstUs: number | undefined;
    let wasAsked = false;
    for (let number = 0; open.length > 0; number += 1) {
      const newestUs = newestOf(open);
      const us = newestUs === undefined ? 0 : voters.ballotUs(newestUs);
      const sentAtMs = systemClock.monotonicMs();
      const ballot = { us, firstUs: (firstUs ??= us), isRaised: number > 0 };
      const round = new Round({
        voters,
        asks: open,
        ballot,
        limitMs: serverLimitMs,
        onAllHeard,
      });
      await round.over;
      let pauseMs = Infinity;
      wasAsked ||= round.wasAsked;
      const { unasked, owing } = round;
      open = open.filter((contest) => {
        const isClaim = contest instanceof TickAcquisition;
        // The answer must be there before nobody waits for it any more.
        const endsAtMs = startedAtMs + (isClaim ? limitMs - 2 * serverLimitMs : serverLimitMs);
        const waitMs = contest.conclude({
          number,
          ballot,
          sentAtMs,
          endsAtMs,
          limitMs: serverLimitMs,
          wasAsked,
          unasked,
          owing,
        });
        pauseMs = Math.min(pauseMs, waitMs ?? Infinity);
        return waitMs !== undefined;
      });
      if (open.length > 0 && pauseMs > 0) await delay(pauseMs);
    }
  }
}

/** Keeps locks on a majority of independent Redis servers. See {@link RedlockBackend}. */
export const redlockBackend = (options: RedlockOptions): LockBackend => new RedlockBackend(options);

interface Limits {
  readonly limitMs: number;
  /** How long a server is waited for. */
  readonly serverLimitMs: number;
}

/** The newest token that any of them met; nothing, if none needs a ballot. */
function newestOf(contests: readonly Contest[]): number | undefined {
  let newestOfAll: number | undefined;
  for (const { newestUs } of contests) {
    if (newestUs !== undefined) newestOfAll = Math.max(newestUs, newestOfAll ?? 0);
  }
  return newestOfAll;
}

function answerOf<Answer>({ answer }: { readonly answer: Answer | undefined }): Answer {
  if (answer === undefined) throw new Error('Expected every request to be settled.');
  return answer;
}

function chunks<T>(items: readonly T[], size: number): (readonly T[])[] {
  if (items.length <= size) return items.length > 0 ? [items] : [];
  const found: T[][] = [];
  for (let from = 0; from < items.length; from += size) found.push(items.slice(from, from + size));
  return found;
}
