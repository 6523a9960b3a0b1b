import { randomUUID } from 'node:crypto';
import {
  type AcquireRequest,
  type AcquireResult,
  type BatchResult,
  type LockBackend,
  type LockRecord,
  type ReleaseNotice,
  type ReleaseResult,
  type RenewResult,
  type RequestBatch,
  type ServerStatus,
  type TickState,
} from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { delay } from '../../../core/real-time.js';
import { keyPrefixOf } from '../connection.js';
import { createAcquireCommand, haveSameCommand } from './commands.js';
import { Acquisition } from './operations/acquisition.js';
import { forceRelease, inspect, readTicks } from './operations/inspection.js';
import { PendingVotes } from './operations/pending-votes.js';
import type { Quorum, QuorumOperation } from './operations/quorum-operation.js';
import { Release } from './operations/release.js';
import { Renewal } from './operations/renewal.js';
import { Round } from './operations/round.js';
import { REGISTRATION, TickAcquisition } from './operations/tick-acquisition.js';
import { QuorumHistory } from './quorum-history.js';
import { QuorumNotifications, channelFor } from './quorum-notifications.js';
import {
  type RedlockOptions,
  type ResolvedRedlockOptions,
  resolveRedlockOptions,
} from './redlock-options.js';
import { repair } from './replication/repair.js';
import { Replication } from './replication/replication.js';
import type { AcquireCommand } from './server-call.js';
import { QuorumServers } from './servers/quorum-servers.js';

/** More requests in one call would block the other clients of the servers for too long. */
const MAX_BATCH_SIZE = 64;
/** Larger, because no caller waits for a renewal. */
const MAX_RENEWAL_BATCH_SIZE = 200;
const MIN_SERVER_LIMIT_MS = 100;
/** A server must reply within this part of the lease. */
const SERVER_LIMIT_PER_LEASE = 0.1;

/**
 * Locks on a majority of independent Redis servers (>= 6.2). Locks are available and exclusive as long as a majority is up
 * and keeps the writes that it acknowledged. A server that restarts without its data is in quarantine: it has no vote until
 * every lease that it may have forgotten has ended.
 *
 * A quorum keeps no wait queue: the first request after a release gets the lock. Fencing tokens are ballots in µs of the
 * servers' clocks. They grow from grant to grant whatever happens to a minority.
 *
 * @see https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
 */
export class RedlockBackend implements LockBackend {
  readonly name = 'redlock';
  /** A longer lease is refused: it could outlast the quarantine of a server that has forgotten it. */
  readonly maxLeaseMs: number;
  readonly #options: ResolvedRedlockOptions;
  readonly #servers: QuorumServers;
  readonly #notifications: QuorumNotifications;
  readonly #history: QuorumHistory;
  readonly #quorum: Quorum;

  constructor(options: RedlockOptions) {
    this.#options = resolveRedlockOptions(options);
    const { sources, maxLeaseMs } = this.#options;
    const channel = channelFor(sources[0] ? keyPrefixOf(sources[0]) : '');
    this.maxLeaseMs = maxLeaseMs;
    this.#servers = new QuorumServers({ sources, maxLeaseMs, channel });
    this.#notifications = new QuorumNotifications(sources, { needed: this.#servers.needed, channel });
    this.#history = new QuorumHistory(this.#servers);
    const pendingVotes = new PendingVotes();
    this.#quorum = {
      servers: this.#servers,
      replication: new Replication(this.#servers, pendingVotes),
      pendingVotes,
    };
  }

  async execute(
    { release = [], renew = [], acquire = [] }: RequestBatch,
    timeoutMs: number,
  ): Promise<BatchResult> {
    this.#notifications.open();
    const { quarantineMs } = this.#servers;
    const releasing = release.map((request) => new Release(request, this.#quorum));
    const renewing = renew.map((request) => {
      const command = `renew ${request.leaseMs} ${request.leaseMs + quarantineMs}`;
      return new Renewal(request, command, this.#quorum);
    });
    const acquiring = this.#createAcquisitions(acquire);
    const others: QuorumOperation[] = [...releasing, ...acquiring];
    const timeouts = { timeoutMs, serverLimitMs: this.#serverLimitMs([...renew, ...acquire], timeoutMs) };
    await Promise.all([
      ...chunks(others, MAX_BATCH_SIZE).map((chunk) => this.#runRounds(chunk, timeouts)),
      ...chunks(renewing, MAX_RENEWAL_BATCH_SIZE).map((chunk) => this.#renew(chunk, timeouts)),
    ]);
    return {
      release: releasing.map(resultOf<ReleaseResult>),
      renew: renewing.map(resultOf<RenewResult>),
      acquire: acquiring.map((one, index) => this.#withNotification(acquire[index], resultOf(one))),
    };
  }

  async inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    const serverLimitMs = await this.#waitUntilReady(timeoutMs);
    return inspect(this.#servers, key, serverLimitMs);
  }

  async forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const serverLimitMs = await this.#waitUntilReady(timeoutMs);
    return forceRelease(this.#servers, key, fencingToken, serverLimitMs);
  }

  async readTicks(key: string, timeoutMs: number): Promise<TickState> {
    const serverLimitMs = await this.#waitUntilReady(timeoutMs);
    return readTicks(this.#servers, key, serverLimitMs);
  }

  async registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    // Longer than the registration can take, so that no other claim comes in between.
    const leaseMs = Math.min(2 * timeoutMs, this.maxLeaseMs);
    const claim = { key, holder: randomUUID(), leaseMs, instance: '', tick: REGISTRATION };
    const registration = new TickAcquisition(claim, this.#quorum);
    await this.#runRounds([registration], {
      timeoutMs,
      serverLimitMs: this.#serverLimitMs([claim], timeoutMs),
    });
    const { result, state } = registration;
    if (result?.kind === 'unknown') throw result.cause;
    return resultOf({ result: state });
  }

  async appendHistory(key: string, text: string, timeoutMs: number): Promise<void> {
    const serverLimitMs = await this.#waitUntilReady(timeoutMs);
    await this.#history.append(key, text, serverLimitMs);
  }

  async readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    const serverLimitMs = await this.#waitUntilReady(timeoutMs);
    return this.#history.read(key, serverLimitMs);
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    return this.#notifications.listen(listener);
  }

  onServerStatus(listener: (status: ServerStatus) => void): () => void {
    return this.#servers.listen(listener);
  }

  /** @throws LockConfigError if a server cannot be used as it is configured; an Error with the reasons while too few have a vote */
  async check(timeoutMs: number): Promise<void> {
    await this.#waitUntilReady(timeoutMs);
    const permanentError = this.#servers.all.find(({ configError }) => configError)?.configError;
    if (permanentError) throw permanentError;
    if (this.#servers.voting < this.#servers.needed) throw this.#servers.noMajorityResult(timeoutMs).cause;
  }

  close(): Promise<void> {
    this.#quorum.replication.close();
    this.#servers.close();
    this.#notifications.close();
    return Promise.resolve();
  }

  #withNotification(request: AcquireRequest | undefined, result: AcquireResult): AcquireResult {
    if (result.kind !== 'taken' || !request?.retryWithinMs) return result;
    this.#notifications.addWaiter(request);
    return this.#notifications.isSubscribed ? { ...result, willBeNotified: true } : result;
  }

  /** Waits for the first attempts to connect. Returns how long one server may take, in ms. */
  async #waitUntilReady(timeoutMs: number): Promise<number> {
    const serverLimitMs = Math.min(timeoutMs, this.#options.serverLimitMs);
    await this.#servers.waitUntilReady({ serverLimitMs, timeoutMs });
    return serverLimitMs;
  }

  #serverLimitMs(leases: readonly { readonly leaseMs: number }[], timeoutMs: number): number {
    let shortestMs = Infinity;
    for (const { leaseMs } of leases) shortestMs = Math.min(shortestMs, leaseMs);
    const forLeaseMs = Math.max(shortestMs * SERVER_LIMIT_PER_LEASE, MIN_SERVER_LIMIT_MS);
    return Math.min(timeoutMs, this.#options.serverLimitMs, forLeaseMs);
  }

  #createAcquisitions(acquire: readonly AcquireRequest[]): readonly (Acquisition | TickAcquisition)[] {
    const { quarantineMs } = this.#servers;
    if (acquire.length === 0) return [];
    const initialServers = this.#servers.fastestMajority;
    let previous: AcquireRequest | undefined;
    let command: AcquireCommand | undefined;
    return acquire.map((request) => {
      const { tick } = request;
      if (tick) return new TickAcquisition({ ...request, tick }, this.#quorum);
      // Acquisitions of one process mostly have the same parameters, and then share the encoded command.
      if (!previous || !command || !haveSameCommand(previous, request))
        command = createAcquireCommand(request, quarantineMs);
      previous = request;
      return new Acquisition(request, { command, initialServers }, this.#quorum);
    });
  }

  async #renew(renewals: readonly Renewal[], timeouts: Timeouts): Promise<void> {
    const sentAtMs = systemClock.monotonicMs();
    await this.#runRounds(renewals, timeouts, () => void repair(this.#quorum, renewals, sentAtMs));
  }

  /** Runs round after round until each operation has its result. */
  async #runRounds(
    operations: readonly QuorumOperation[],
    { timeoutMs, serverLimitMs }: Timeouts,
    onAllReplied?: () => void,
  ) {
    const servers = this.#servers;
    const startedAtMs = systemClock.monotonicMs();
    const ready = servers.waitUntilReady({
      serverLimitMs,
      timeoutMs: Math.max(timeoutMs - serverLimitMs, 0),
    });
    if (ready) await ready;
    let open = operations;
    let firstUs: number | undefined;
    let wasSent = false;
    for (let roundNumber = 0; open.length > 0; roundNumber += 1) {
      const newestTokenUs = newestTokenOf(open);
      const us = newestTokenUs === undefined ? 0 : servers.nextBallotUs(newestTokenUs);
      const sentAtMs = systemClock.monotonicMs();
      const ballot = { us, firstUs: (firstUs ??= us), isRaised: roundNumber > 0 };
      const round = new Round({
        servers,
        requests: open,
        ballot,
        timeoutMs: serverLimitMs,
        onAllReplied,
      });
      await round.done;
      let pauseMs = Infinity;
      wasSent ||= round.wasSent;
      const { uncontacted, unanswered } = round;
      open = open.filter((operation) => {
        const isClaim = operation instanceof TickAcquisition;
        // The result must be there while the caller still waits for it.
        const endsAtMs = startedAtMs + (isClaim ? timeoutMs - 2 * serverLimitMs : serverLimitMs);
        const waitMs = operation.conclude({
          roundNumber,
          ballot,
          sentAtMs,
          endsAtMs,
          timeoutMs: serverLimitMs,
          wasSent,
          uncontacted,
          unanswered,
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

interface Timeouts {
  readonly timeoutMs: number;
  /** How long to wait for one server. */
  readonly serverLimitMs: number;
}

/** The newest token that any of the operations has seen; `undefined` if none needs a ballot. */
function newestTokenOf(operations: readonly QuorumOperation[]): number | undefined {
  let newestOfAll: number | undefined;
  for (const { newestTokenUs } of operations) {
    if (newestTokenUs !== undefined) newestOfAll = Math.max(newestTokenUs, newestOfAll ?? 0);
  }
  return newestOfAll;
}

function resultOf<Result>({ result }: { readonly result: Result | undefined }): Result {
  if (result === undefined) throw new Error('Expected every request to be settled.');
  return result;
}

function chunks<T>(items: readonly T[], size: number): (readonly T[])[] {
  if (items.length <= size) return items.length > 0 ? [items] : [];
  const found: T[][] = [];
  for (let from = 0; from < items.length; from += size) found.push(items.slice(from, from + size));
  return found;
}
