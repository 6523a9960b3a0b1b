import { randomUUID } from 'node:crypto';
import type { AcquireRequest, BatchResult, LockBackend, RequestBatch } from '../../../core/backend.js';
import type { AcquireResult, ReleaseResult, RenewResult } from '../../../core/backend-results.js';
import type { ReleaseNotice, ServerStatus } from '../../../core/store-notices.js';
import type { ListRequest, LockPage, LockRecord } from '../../../core/lock-record.js';
import type { TickState } from '../../../core/tick.js';
import { systemClock } from '../../../core/clock.js';
import { MIN_LEASE_MS } from '../../../core/options.js';
import { chunksOf } from '../chunks.js';
import { keyPrefixOf } from '../redis-source.js';
import { Acquisition, acquireCommands } from './operations/acquisition.js';
import { forceRelease, inspect, readTicks, setPaused } from './operations/majority-queries.js';
import { list } from './operations/listing.js';
import { PendingVotes } from './operations/pending-votes.js';
import type { Quorum, QuorumOperation } from './operations/quorum-operation.js';
import { Release } from './operations/release.js';
import { Renewal } from './operations/renewal.js';
import { runRounds } from './operations/round.js';
import { REGISTRATION, TickAcquisition } from './operations/tick-acquisition.js';
import { QuorumHistory } from './quorum-history.js';
import { QuorumNotifications, channelFor } from './quorum-notifications.js';
import {
  type RedlockOptions,
  type ResolvedRedlockOptions,
  resolveRedlockOptions,
} from './redlock-options.js';
import { Replication } from './replication/replication.js';
import { MAX_CALL_MS } from './server-call.js';
import { QuorumServers, type Timeouts } from './servers/quorum-servers.js';

/** More requests in one call would block the other clients of the servers for too long. */
const MAX_CHUNK_SIZE = 64;
/** Larger, because no caller waits for a renewal. */
const MAX_RENEWAL_CHUNK_SIZE = 200;
const MIN_SERVER_LIMIT_MS = 100;
/** A server must reply within this part of the lease. */
const SERVER_LIMIT_PER_LEASE = 0.1;
/** A registration claims and marks in two rounds. The lease is as long as four, because a round may begin late. */
const ROUNDS_PER_REGISTRATION_LEASE = 4;
const REGISTRATION_LEASE_MS = ROUNDS_PER_REGISTRATION_LEASE * MAX_CALL_MS;

/**
 * Keeps locks on a majority of independent Redis servers (6.2 or newer). Locks are available and exclusive as long as a
 * majority is up and keeps the writes that it acknowledged. A server that restarts without its data is in quarantine:
 * it has no vote until every lease that it may have forgotten has ended.
 *
 * A quorum has no wait queue: the first request after a release gets the lock. Fencing tokens are ballots in µs of the
 * servers' clocks. Each later grant has a larger one, whatever happens to a minority.
 *
 * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
 */
export class RedlockBackend implements LockBackend {
  readonly name = 'redlock';
  /** A longer lease is refused: it could outlast the quarantine of a server that has forgotten it. */
  readonly maxLeaseMs: number;
  readonly #options: ResolvedRedlockOptions;
  readonly #keyPrefix: string;
  readonly #servers: QuorumServers;
  readonly #notifications: QuorumNotifications;
  readonly #history: QuorumHistory;
  readonly #quorum: Quorum;

  constructor(options: RedlockOptions) {
    this.#options = resolveRedlockOptions(options);
    const { sources, maxLeaseMs } = this.#options;
    this.#keyPrefix = sources[0] ? keyPrefixOf(sources[0]) : '';
    const channel = channelFor(this.#keyPrefix);
    this.maxLeaseMs = maxLeaseMs;
    const servers = new QuorumServers({ sources, maxLeaseMs, channel });
    const pendingVotes = new PendingVotes();
    this.#servers = servers;
    this.#notifications = new QuorumNotifications(sources, { needed: servers.needed, channel });
    this.#history = new QuorumHistory(servers);
    this.#quorum = { servers, replication: new Replication(servers, pendingVotes), pendingVotes };
  }

  get isReady(): boolean {
    return this.#servers.voting >= this.#servers.needed;
  }

  async execute(
    { release = [], renew = [], acquire = [] }: RequestBatch,
    timeoutMs: number,
  ): Promise<BatchResult> {
    this.#notifications.open();
    const nowMs = systemClock.monotonicMs();
    const releasing = release.map((request) => new Release(request, this.#quorum));
    const renewing = renew.map((request) => new Renewal(request, this.#quorum, nowMs));
    const acquiring = this.#createAcquisitions(acquire);
    // Releases do not wait until enough servers have a vote.
    const mayShareCalls = release.length === 0 || acquire.length === 0 || this.isReady;
    const groups = mayShareCalls ? [[...releasing, ...acquiring]] : [releasing, acquiring];
    const chunks: (readonly QuorumOperation[])[] = [
      ...groups.flatMap((group) => chunksOf<QuorumOperation>(group, MAX_CHUNK_SIZE)),
      ...chunksOf(renewing, MAX_RENEWAL_CHUNK_SIZE),
    ];
    const timeouts = this.#timeouts(timeoutMs, [...renew, ...acquire]);
    await Promise.all(chunks.map((chunk) => runRounds(this.#servers, chunk, timeouts)));
    return {
      release: releasing.map(resultOf<ReleaseResult>),
      renew: renewing.map(resultOf<RenewResult>),
      acquire: acquiring.map((one, index) => this.#withNotification(acquire[index], resultOf(one))),
    };
  }

  inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return inspect(this.#servers, key, this.#timeouts(timeoutMs));
  }

  list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    return list(this.#servers, { request, keyPrefix: this.#keyPrefix, timeouts: this.#timeouts(timeoutMs) });
  }

  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    return forceRelease(this.#servers, { key, fencingToken }, this.#timeouts(timeoutMs));
  }

  readTicks(key: string, timeoutMs: number): Promise<TickState> {
    return readTicks(this.#servers, key, this.#timeouts(timeoutMs));
  }

  async registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    // Longer than its two rounds can take, so that no other claim comes in between. It blocks others if this process dies.
    const leaseMs = Math.min(REGISTRATION_LEASE_MS, this.maxLeaseMs);
    const claim = { key, holder: randomUUID(), leaseMs, instance: '', tick: REGISTRATION };
    const registration = new TickAcquisition(claim, this.#quorum);
    const timeouts = this.#timeouts(timeoutMs);
    const serverLimitMs = Math.min(timeouts.serverLimitMs, leaseMs / ROUNDS_PER_REGISTRATION_LEASE);
    await runRounds(this.#servers, [registration], { ...timeouts, serverLimitMs });
    const { result, state } = registration;
    if (result?.kind === 'unknown') throw result.cause;
    return resultOf({ result: state });
  }

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    return setPaused(this.#servers, { key, isPaused }, this.#timeouts(timeoutMs));
  }

  appendHistory(key: string, text: string, timeoutMs: number): Promise<void> {
    return this.#history.append(key, text, this.#timeouts(timeoutMs));
  }

  readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    return this.#history.read(key, this.#timeouts(timeoutMs));
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    return this.#notifications.listen(listener);
  }

  onServerStatus(listener: (status: ServerStatus) => void): () => void {
    return this.#servers.listen(listener);
  }

  /** @throws LockConfigError if a server cannot be used as it is configured; an Error with the reasons while too few have a vote */
  async check(timeoutMs: number): Promise<void> {
    await this.#servers.waitUntilReady(this.#timeouts(timeoutMs));
    const { configError, voting, needed } = this.#servers;
    if (configError) throw configError;
    if (voting < needed) throw this.#servers.noMajorityResult(timeoutMs).cause;
  }

  close(): Promise<void> {
    this.#quorum.replication.close();
    this.#servers.close();
    this.#notifications.close();
    return Promise.resolve();
  }

  #createAcquisitions(acquire: readonly AcquireRequest[]): readonly (Acquisition | TickAcquisition)[] {
    if (acquire.length === 0) return [];
    const commandOf = acquireCommands(this.#servers.quarantineMs);
    const initialServers = this.#servers.fastestMajority;
    return acquire.map((request) => {
      const { tick } = request;
      if (tick) return new TickAcquisition({ ...request, tick }, this.#quorum);
      return new Acquisition(request, { command: commandOf(request), initialServers }, this.#quorum);
    });
  }

  #withNotification(request: AcquireRequest | undefined, result: AcquireResult): AcquireResult {
    if (result.kind !== 'taken' || !request?.retryWithinMs) return result;
    this.#notifications.start();
    return this.#notifications.isSubscribed ? { ...result, willBeNotified: true } : result;
  }

  #timeouts(timeoutMs: number, leases: readonly { readonly leaseMs: number }[] = []): Timeouts {
    // A renewal with the shortest lease only confirms a longer one.
    const shortestMs = leases.reduce(
      (ms, { leaseMs }) => (leaseMs > MIN_LEASE_MS ? Math.min(ms, leaseMs) : ms),
      Infinity,
    );
    const forLeaseMs = Math.max(shortestMs * SERVER_LIMIT_PER_LEASE, MIN_SERVER_LIMIT_MS);
    const serverLimitMs = Math.min(timeoutMs, this.#options.serverLimitMs, forLeaseMs);
    return { timeoutMs, serverLimitMs, closed: this.#servers.closed };
  }
}

/** Keeps locks on a majority of independent Redis servers. See {@link RedlockBackend}. */
export const redlockBackend = (options: RedlockOptions): LockBackend => new RedlockBackend(options);

function resultOf<Result>({ result }: { readonly result: Result | undefined }): Result {
  if (result === undefined) throw new Error('Expected every request to be settled.');
  return result;
}
