import {
  type ServerStatus,
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../../core/backend.js';
import { systemClock } from '../../../../core/clock.js';
import { StoreTimeoutError } from '../../../../core/requests/store-timeout-error.js';
import { withTimeout } from '../../../../core/requests/with-timeout.js';
import type { RedisSource } from '../../connection.js';
import { QuorumServer } from './quorum-server.js';
import { ServerList } from './server-list.js';

interface QuorumServersOptions {
  readonly sources: readonly RedisSource[];
  readonly maxLeaseMs: number;
  readonly channel: string;
}

/** Margins of the quarantine: the uptime is known in whole seconds, and clocks of two machines differ slightly in speed. */
const QUARANTINE_MARGIN_MS = 2_000;
const DRIFT_RATIO = 0.01;
/** How far the newest ballot may be ahead of the servers' clocks, as part of the ballot tolerance. */
const AHEAD_RATIO = 0.1;

/** All servers of a quorum, and the ballots for them. */
export class QuorumServers {
  readonly all: readonly QuorumServer[];
  /** All servers, in bits. */
  readonly allBits: number;
  /** How many votes are a majority. */
  readonly needed: number;
  /** How long a server remembers the tokens of a key after its lease, and how long it has no vote if it may have forgotten them. */
  readonly quarantineMs: number;
  readonly #ballotToleranceUs: number;
  readonly #serverList: ServerList;
  #newestBallotUs = 0;
  readonly #listeners = new Set<(status: ServerStatus) => void>();

  constructor({ sources, maxLeaseMs, channel }: QuorumServersOptions) {
    this.allBits = 2 ** sources.length - 1;
    this.needed = Math.floor(sources.length / 2) + 1;
    this.quarantineMs = Math.ceil(maxLeaseMs * (1 + DRIFT_RATIO)) + QUARANTINE_MARGIN_MS;
    // Twice this is less than the quarantine. So a server never votes again for a ballot that it may have forgotten.
    const ballotToleranceUs = maxLeaseMs * 500;
    this.#ballotToleranceUs = ballotToleranceUs;
    const onHandshakeChange = () => {
      this.#findDuplicates();
      this.#serverList.onServersChanged();
    };
    const onStatusChange = (server: QuorumServer, fault: string | undefined) => this.#publish(server, fault);
    const shared = {
      maxLeaseMs,
      quarantineMs: this.quarantineMs,
      ballotToleranceUs,
      channel,
      onHandshakeChange,
      onStatusChange,
    };
    this.all = sources.map((source, index) => new QuorumServer({ ...shared, source, index }));
    this.#serverList = new ServerList(this.all, this.quarantineMs);
  }

  /** How many servers may fail while a majority remains. */
  get maxFailures(): number {
    return this.all.length - this.needed;
  }

  /** The majority that is likely to reply first, in bits; all servers if no majority may vote. */
  get fastestMajority(): number {
    const nowMs = systemClock.monotonicMs();
    let bits = 0;
    let missing = this.needed;
    for (const wantsQuick of [true, false]) {
      for (const server of this.all) {
        if (server.isQuick(nowMs) !== wantsQuick || !server.mayVote(nowMs)) continue;
        bits |= server.bit;
        missing -= 1;
        if (missing === 0) return bits;
      }
    }
    return this.allBits;
  }

  /** How many servers have a vote now. */
  get voting(): number {
    return this.all.filter((server) => server.hasVote).length;
  }

  /**
   * Resolves once each server was tried and the server list is confirmed, after `serverLimitMs` at the latest; without a
   * majority by then, after `timeoutMs`. A server that does not even refuse is waited for only once. Returns `undefined` if
   * there is nothing to wait for.
   */
  waitUntilReady({
    serverLimitMs,
    timeoutMs,
  }: {
    serverLimitMs: number;
    timeoutMs: number;
  }): Promise<void> | undefined {
    let attempts: Promise<void>[] | undefined;
    for (const server of this.all) {
      const attempt = server.open();
      if (attempt && !this.#canDoWithout(server)) (attempts ??= []).push(attempt);
    }
    if (!attempts && this.#isConfirmed()) return undefined;
    return this.#waitForAttempts(attempts ?? [], { serverLimitMs, timeoutMs });
  }

  #canDoWithout(server: QuorumServer): boolean {
    return server.isReconnecting && this.voting >= this.needed;
  }

  /** Reports servers that lose their vote for a while, and that have it again. */
  listen(listener: (status: ServerStatus) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#serverList.close();
    for (const server of this.all) server.close();
  }

  /**
   * The next ballot: the time of the median server, so that one wrong clock has no influence; and more than the largest token
   * that the servers are known to have granted.
   */
  nextBallotUs(moreThanUs: number): number {
    const nowMs = systemClock.monotonicMs();
    const times: number[] = [];
    for (const { clock } of this.all) if (clock.isKnown) times.push(clock.latestUs(nowMs));
    const nowUs = Math.floor(medianOf(times));
    // So far ahead only if the servers' clocks were set back. They would soon refuse larger ballots, so it starts over.
    const isAhead = this.#newestBallotUs - nowUs > this.#ballotToleranceUs * AHEAD_RATIO;
    this.#newestBallotUs = isAhead ? nowUs : Math.max(this.#newestBallotUs + 1, nowUs);
    return Math.max(this.#newestBallotUs, moreThanUs + 1);
  }

  /** The result of a request to which no majority replied, with the faults of the servers. */
  noMajorityResult(timeoutMs: number, wasSent = true): UnknownResult {
    const permanentError = this.all.find(({ configError }) => configError)?.configError;
    const faults = this.all.flatMap(({ fault, name }) => (fault ? [`${name} ${fault}`] : []));
    const reason =
      `${this.needed} of ${this.all.length} Redis servers must agree, but ` +
      (faults.join('; ') || 'requests reached them too late, or their clocks are far apart');
    const mayReply =
      this.all.filter((server) => server.hasVote || server.isReconnecting).length >= this.needed;
    const cause = permanentError ?? (mayReply ? new TooFewReplies(timeoutMs, reason) : new Error(reason));
    if (!wasSent) return neverSentResult(cause);
    return mayReply && this.all.some((server) => server.isReconnecting)
      ? connectionLostResult(cause)
      : unknownResult(cause);
  }

  /** If several addresses lead to one server, the first of them has its vote, in whatever order they connect. */
  #findDuplicates(): void {
    for (const server of this.all) {
      const { runId, index } = server;
      const isOriginal = (other: QuorumServer) => other.index < index && other.runId === runId;
      server.setDuplicateOf(runId === undefined ? undefined : this.all.find(isOriginal));
    }
  }

  #publish({ name }: QuorumServer, fault: string | undefined): void {
    const counts = { voting: this.voting, needed: this.needed, servers: this.all.length };
    const status = { server: name, ...(fault !== undefined && { fault }), ...counts };
    for (const listener of this.#listeners) listener(status);
  }

  async #waitForAttempts(
    attempts: readonly Promise<void>[],
    { serverLimitMs, timeoutMs }: { serverLimitMs: number; timeoutMs: number },
  ): Promise<void> {
    const all = Promise.all(attempts);
    const wereTried = await withTimeout(systemClock, serverLimitMs, all, { awaited: true });
    await this.#waitForConfirmation(serverLimitMs);
    if (this.voting < this.needed) {
      const restMs = timeoutMs - serverLimitMs;
      const rest = all.then(() => this.#waitForConfirmation(restMs));
      await withTimeout(systemClock, restMs, rest, { awaited: true });
    }
    if (wereTried) return;
    for (const server of this.all) server.settleConnectAttempt();
  }

  async #waitForConfirmation(timeoutMs: number): Promise<void> {
    if (this.#isConfirmed()) return;
    await withTimeout(systemClock, timeoutMs, this.#serverList.confirm(), { awaited: true });
  }

  #isConfirmed(): boolean {
    if (!this.#serverList.isConfirmed) return false;
    return !this.#serverList.isConfirming || this.voting >= this.needed;
  }
}

/** A majority is connected, but silent or slow. As a timeout of the store, it does not make waiters give up. */
class TooFewReplies extends StoreTimeoutError {
  constructor(timeoutMs: number, reason: string) {
    super(timeoutMs);
    this.message = reason;
  }
}

/** The lower median; 0 for no values. */
export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[(sorted.length - 1) >> 1] ?? 0;
}

export function countBits(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
