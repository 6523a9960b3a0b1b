import type { ServerStatus } from '../../../../core/store-notices.js';
import {
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../../core/unknown-result.js';
import { type Timer, systemClock } from '../../../../core/clock.js';
import { delay } from '../../../../core/real-timers.js';
import { StoreTimeoutError, withTimeout } from '../../../../core/requests/store-timeout.js';
import type { RedisSource } from '../../redis-source.js';
import { QuorumServer } from './quorum-server.js';
import { Ballots } from './server-clocks.js';
import { ServerList } from './server-list.js';

interface QuorumServersOptions {
  readonly sources: readonly RedisSource[];
  readonly maxLeaseMs: number;
  readonly channel: string;
}

export interface Timeouts {
  readonly timeoutMs: number;
  /** How long to wait for one server. */
  readonly serverLimitMs: number;
  /** Aborted once the backend is closed: a request in progress opens no connection again. */
  readonly closed: AbortSignal;
}

/** The limits within which servers must be ready, so that a request can still be sent to them in time. */
export const limitsBeforeRequest = (timeouts: Timeouts): Timeouts => ({
  ...timeouts,
  timeoutMs: Math.max(timeouts.timeoutMs - timeouts.serverLimitMs, 0),
});

/** Margins of the quarantine: the uptime is known in whole seconds, and clocks of two machines differ slightly in speed. */
const QUARANTINE_MARGIN_MS = 2_000;
const DRIFT_RATIO = 0.01;
/** How often to look whether a server that is late for a confirmation has replied. */
const LATE_REPLY_CHECK_MS = 10;
/** How often to look whether servers have a vote. What has changed and is the same at the next look is reported. */
const STATUS_CHECK_MS = 1_000;

/** All servers of a quorum. */
export class QuorumServers {
  readonly all: readonly QuorumServer[];
  /** All servers, in bits. */
  readonly allBits: number;
  /** How many votes are a majority. */
  readonly needed: number;
  /** How long a server remembers the tokens of a key after its lease, and how long it has no vote if it may have forgotten them. */
  readonly quarantineMs: number;
  readonly ballots: Ballots;
  readonly #serverList: ServerList;
  readonly #listeners = new Set<(status: ServerStatus) => void>();
  #statusTimer: Timer | undefined;
  #closing = new AbortController();
  /** The servers that were reported as away, and those that were different from that at the last look. */
  readonly #away = new Set<QuorumServer>();
  readonly #changed = new Set<QuorumServer>();

  constructor({ sources, maxLeaseMs, channel }: QuorumServersOptions) {
    this.allBits = 2 ** sources.length - 1;
    this.needed = Math.floor(sources.length / 2) + 1;
    this.quarantineMs = Math.ceil(maxLeaseMs * (1 + DRIFT_RATIO)) + QUARANTINE_MARGIN_MS;
    // Twice this is less than the quarantine. So a server never votes again for a ballot that it may have forgotten.
    const ballotToleranceUs = maxLeaseMs * 500;
    const { quarantineMs } = this;
    const onHandshakeChange = () => {
      this.#findDuplicates();
      this.#serverList.onServersChanged();
    };
    const shared = { maxLeaseMs, quarantineMs, ballotToleranceUs, channel, onHandshakeChange };
    this.all = sources.map((source, index) => new QuorumServer({ ...shared, source, index }));
    this.ballots = new Ballots(this.all, ballotToleranceUs);
    this.#serverList = new ServerList(this.all, quarantineMs);
  }

  /** How many servers may fail while a majority remains. */
  get maxFailures(): number {
    return this.all.length - this.needed;
  }

  /** The servers of a set of bits. */
  in(bits: number): readonly QuorumServer[] {
    return bits === 0 ? [] : this.all.filter((server) => bits & server.bit);
  }

  /** The majority that is likely to reply first, in bits; all servers if no majority may vote. */
  get fastestMajority(): number {
    const nowMs = systemClock.monotonicMs();
    const usable = this.all.filter((server) => server.isReachable && server.hasVoteSince(nowMs));
    if (usable.length < this.needed) return this.allBits;
    const [quick, slow] = [true, false].map((isQuick) =>
      usable.filter((server) => server.replies.isQuick(nowMs) === isQuick),
    );
    const fastest = [...(quick ?? []), ...(slow ?? [])].slice(0, this.needed);
    return fastest.reduce((bits, { bit }) => bits | bit, 0);
  }

  /** How many servers have a vote now. */
  get voting(): number {
    return this.all.filter((server) => server.hasVote).length;
  }

  /**
   * Resolves once each server was tried and the server list is confirmed, after `serverLimitMs` at the latest; without a
   * majority by then, after `timeoutMs`. A server that does not even refuse is waited for only once. Returns `undefined` if
   * there is nothing to wait for, or the backend is closed. Without `needsVotes`, servers that are late for the
   * confirmation are not waited for.
   */
  waitUntilReady(timeouts: Timeouts, { needsVotes = true } = {}): Promise<void> | undefined {
    if (timeouts.closed.aborted) return undefined;
    this.#statusTimer ??= systemClock.after(STATUS_CHECK_MS, () => this.#checkStatus());
    this.#serverList.open();
    let attempts: Promise<void>[] | undefined;
    for (const server of this.all) {
      const attempt = server.connection.open();
      const canDoWithout = () => server.isReconnecting && this.voting >= this.needed;
      if (attempt && !canDoWithout()) (attempts ??= []).push(attempt);
    }
    if (!attempts && this.#isConfirmed()) return undefined;
    return this.#waitForAttempts(attempts ?? [], timeouts, needsVotes);
  }

  /** Reports servers that lose their vote for a while, and that have it again. */
  listen(listener: (status: ServerStatus) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Aborted by the next `close()`. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  close(): void {
    this.#closing.abort();
    this.#closing = new AbortController();
    this.#statusTimer?.cancel();
    this.#statusTimer = undefined;
    this.#away.clear();
    this.#changed.clear();
    this.#serverList.close();
    for (const server of this.all) server.close();
  }

  /** Why a server cannot be used as it is configured. */
  get configError(): Error | undefined {
    return this.all.find(({ configError }) => configError)?.configError;
  }

  /** The result of a request to which no majority replied, with the faults of the servers. */
  noMajorityResult(timeoutMs: number, wasSent = true): UnknownResult {
    const faults = this.all.flatMap(({ fault, name }) => (fault ? [`${name} ${fault}`] : []));
    const reason =
      `${this.needed} of ${this.all.length} Redis servers must agree, but ` +
      (faults.join('; ') || 'requests reached them too late, or their clocks are far apart');
    const mayReply =
      this.all.filter((server) => server.hasVote || server.isReconnecting).length >= this.needed;
    const cause = this.configError ?? (mayReply ? new TooFewReplies(timeoutMs, reason) : new Error(reason));
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

  #checkStatus(): void {
    this.#statusTimer = systemClock.after(STATUS_CHECK_MS, () => this.#checkStatus());
    for (const server of this.all) {
      const { fault } = server;
      const isDifferent = this.#away.has(server) !== (fault !== undefined);
      const hasLasted = isDifferent && this.#changed.has(server);
      if (isDifferent && !hasLasted) this.#changed.add(server);
      else this.#changed.delete(server);
      if (hasLasted) this.#report(server, fault);
    }
  }

  #report(server: QuorumServer, fault: string | undefined): void {
    if (fault === undefined) this.#away.delete(server);
    else this.#away.add(server);
    const counts = { voting: this.voting, needed: this.needed, servers: this.all.length };
    const status = { server: server.name, ...(fault !== undefined && { fault }), ...counts };
    for (const listener of this.#listeners) listener(status);
  }

  async #waitForAttempts(
    attempts: readonly Promise<void>[],
    { serverLimitMs, timeoutMs }: Timeouts,
    needsVotes: boolean,
  ): Promise<void> {
    const all = Promise.all(attempts);
    const wereTried = await withTimeout(systemClock, serverLimitMs, all, { awaited: true });
    await this.#waitForConfirmation(serverLimitMs);
    if (this.voting < this.needed) {
      const restMs = timeoutMs - serverLimitMs;
      const rest = all.then(() =>
        needsVotes ? this.#waitForLateReplies(restMs) : this.#waitForConfirmation(restMs),
      );
      await withTimeout(systemClock, restMs, rest, { awaited: true });
    }
    if (wereTried) return;
    for (const server of this.all) server.connection.settleAttempt();
  }

  /** Waits for a confirmation, and then as long as servers that were too late for it can make a majority. */
  async #waitForLateReplies(timeoutMs: number): Promise<void> {
    const untilMs = systemClock.monotonicMs() + timeoutMs;
    await this.#waitForConfirmation(timeoutMs);
    const canVote = (server: QuorumServer) => server.hasVote || this.#serverList.isLate(server);
    while (this.voting < this.needed && this.all.filter(canVote).length >= this.needed) {
      if (systemClock.monotonicMs() >= untilMs) return;
      await delay(LATE_REPLY_CHECK_MS);
    }
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

export function countBits(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
