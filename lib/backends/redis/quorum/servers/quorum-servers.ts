import { withTimeout } from '../../../../core/requests/with-timeout.js';
import {
  type ServerStatus,
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../../core/backend.js';
import { systemClock } from '../../../../core/clock.js';
import { StoreTimeoutError } from '../../../../core/requests/store-timeout-error.js';
import type { RedisSource } from '../../connection.js';
import { ServerList } from './server-list.js';
import { QuorumServer } from './quorum-server.js';

interface QuorumServersOptions {
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
export class QuorumServers {
  readonly all: readonly QuorumServer[];
  /** The same in bits. */
  readonly allBits: number;
  /** So many votes are a majority. */
  readonly needed: number;
  /** How long a server remembers the tokens of a key after its lease, and is not trusted if it may have forgotten. */
  readonly quarantineMs: number;
  readonly #ballotToleranceUs: number;
  readonly #serverList: ServerList;
  #newestBallotUs = 0;
  readonly #listeners = new Set<(status: ServerStatus) => void>();

  constructor({ sources, maxLeaseMs, channel }: QuorumServersOptions) {
    this.allBits = 2 ** sources.length - 1;
    this.needed = Math.floor(sources.length / 2) + 1;
    this.quarantineMs = Math.ceil(maxLeaseMs * (1 + DRIFT_RATIO)) + QUARANTINE_MARGIN_MS;
    // Twice this is less than the quarantine: what a server forgot is then too old to be asked for again.
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

  /** How many servers may fail. */
  get maxFailures(): number {
    return this.all.length - this.needed;
  }

  /** The majority that is likely to answer first, in bits; everyone, if there is none. */
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

  get voting(): number {
    return this.all.filter((server) => server.hasVote).length;
  }

  /**
   * Settles once each server has been tried and the list is confirmed. Both are waited for `shortMs`, or for `limitMs` as long
   * as there is no majority without that; and a server that does not even refuse only once. `undefined`: there is nothing to wait for.
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

  /** Hears of servers that go and come back. */
  listen(listener: (status: ServerStatus) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#serverList.close();
    for (const server of this.all) server.close();
  }

  /**
   * The fencing token to ask for: the time of the median server, so that one whose clock is wrong moves nobody, and more
   * than that where the servers are known to have granted a larger one.
   */
  nextBallotUs(moreThanUs: number): number {
    const nowMs = systemClock.monotonicMs();
    const times: number[] = [];
    for (const { clock } of this.all) if (clock.isKnown) times.push(clock.latestUs(nowMs));
    const nowUs = Math.floor(medianOf(times));
    // So far ahead only if the clocks were set back: servers would soon refuse what follows it.
    const isAhead = this.#newestBallotUs - nowUs > this.#ballotToleranceUs * AHEAD_RATIO;
    this.#newestBallotUs = isAhead ? nowUs : Math.max(this.#newestBallotUs + 1, nowUs);
    return Math.max(this.#newestBallotUs, moreThanUs + 1);
  }

  /** Why no majority answered. */
  noMajorityResult(timeoutMs: number, wasSent = true): UnknownResult {
    const permanentError = this.all.find(({ configError }) => configError)?.configError;
    const faults = this.all.flatMap(({ fault, name }) => (fault ? [`${name} ${fault}`] : []));
    const reason =
      `of ${this.all.length} Redis servers ${this.needed} must agree, but ` +
      (faults.join('; ') || 'requests reached them too late, or their clocks are far apart');
    const mayAnswer =
      this.all.filter((server) => server.hasVote || server.isReconnecting).length >= this.needed;
    const cause = permanentError ?? (mayAnswer ? new TooFewReplies(timeoutMs, reason) : new Error(reason));
    if (!wasSent) return neverSentResult(cause);
    return mayAnswer && this.all.some((server) => server.isReconnecting)
      ? connectionLostResult(cause)
      : unknownResult(cause);
  }

  /** Of those who are one server the first has its vote, in whatever order they come and go. */
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

/** Servers that are there, but silent or slow: no reason to leave the line. */
class TooFewReplies extends StoreTimeoutError {
  constructor(timeoutMs: number, reason: string) {
    super(timeoutMs);
    this.message = reason;
  }
}

export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[(sorted.length - 1) >> 1] ?? 0;
}

export function countBits(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
