import {
  type AcquireRequest,
  type AcquireResult,
  type BatchResult,
  type Granted,
  type LockBackend,
  type LockRecord,
  type ReleaseNotice,
  type ReleaseResult,
  type RenewResult,
  type RequestBatch,
  type TickClaim,
  type TickRefused,
  type TickState,
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { formatReason } from '../../../core/format.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';
import {
  type RedisSource,
  isCluster,
  isConnectionLost,
  keyPrefixOf,
  notificationConnection,
} from '../connection.js';
import { appendHistory, readHistory } from '../history.js';
import { Notifications } from '../notifications.js';
import type { ScriptRunner } from '../script-runner.js';
import { checkRedisSource } from '../source-options.js';
import { runPerSlot, slotOf } from './cluster-slots.js';
import { type ScriptRequest, lockKeyOf, parseNotification, runScript } from './commands.js';
import { TICK_MEMORY_MS } from './lock-script.js';
import { Connection, checkIsPrimary } from './redis-connection.js';
import { ReplicaAcknowledgement, type ReplicaOptions } from './replica-acknowledgement.js';

/**
 * More requests in one call would block the other clients of the server for too long. Several calls are also faster than one:
 * while the server works on a call, this process builds the next one and reads the replies of the last.
 */
const MAX_BATCH_SIZE = 64;
/** Larger, because no caller waits for a renewal. */
const MAX_RENEWAL_BATCH_SIZE = 200;
/** Batches from this size are sent without the keys of the wait queues first, because contention is rare in them. */
const LARGE_BATCH_SIZE = 8;

/** Where Redis is, and for how many replicas to wait. */
export type RedisBackendOptions = RedisSource & ReplicaOptions;

type Reply = string | Granted | UnknownResult;

interface AttemptOptions {
  readonly timeoutMs: number;
  readonly giveUpAtMs: number;
  readonly keysPerRequest: 1 | 3;
  readonly slot: number;
}

/** The slot that stands for a server without Cluster. */
const ONLY_SLOT = 0;

const RENEW = 'renew ';
const GRANTED = 'granted ';

/**
 * Locks in one Redis (>= 6.2), Valkey, Sentinel group or Cluster, over a connection of its own.
 *
 * Locks are exclusive as long as the server keeps the writes that it acknowledged (no restart without persistence, no
 * failover to a replica that lags behind) and its clock does not jump. Fencing tokens order grants even if it does not.
 */
export class RedisBackend implements LockBackend {
  readonly name = 'redis';
  readonly preferredBatchSize = 32;
  readonly #connection: Connection;
  readonly #notifications: Notifications;
  readonly #isCluster: boolean;
  readonly #keyPrefix: string;
  readonly #replicaAcknowledgement: ReplicaAcknowledgement | undefined;
  /**
   * By slot, as of the newest reply: how far the server's clock is ahead of the monotonic clock of this process, at most. In a
   * Cluster each node has a clock of its own.
   */
  readonly #clockAheadUs: number[] = [];

  constructor(source: RedisBackendOptions) {
    checkRedisSource(source);
    this.#keyPrefix = keyPrefixOf(source);
    const parse = (message: string) => parseNotification(message, this.#keyPrefix);
    this.#notifications = new Notifications({ connect: () => notificationConnection(source), parse });
    this.#isCluster = 'client' in source && isCluster(source.client);
    const { minReplicas, replicaTimeoutMs } = source;
    this.#connection = new Connection(source, replicaTimeoutMs);
    this.#replicaAcknowledgement =
      minReplicas === undefined ? undefined : new ReplicaAcknowledgement(minReplicas, replicaTimeoutMs);
  }

  async execute(
    { release = [], renew = [], acquire = [] }: RequestBatch,
    timeoutMs: number,
  ): Promise<BatchResult> {
    this.#notifications.open();
    const requests: ScriptRequest[] = [];
    for (const { key, holder, hasEnded } of release) {
      requests.push({ key, holder, command: hasEnded ? 'finish' : 'release' });
    }
    for (const { key, holder, leaseMs, moreTokens } of renew) {
      const command = moreTokens ? `${RENEW}${leaseMs} ${moreTokens}` : `${RENEW}${leaseMs}`;
      requests.push({ key, holder, command });
    }
    addAcquireRequests(requests, acquire);
    const replies = await this.#runAll(requests, timeoutMs);
    const renewFrom = release.length;
    const acquireFrom = renewFrom + renew.length;
    return {
      release: replies.slice(0, renewFrom).map(parseReleaseReply),
      renew: replies.slice(renewFrom, acquireFrom).map(parseRenewReply),
      acquire: replies.slice(acquireFrom).map((reply) => this.#parseAcquireReply(reply)),
    };
  }

  async inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    const reply = await this.#runOne({ key, holder: '', command: 'inspect' }, timeoutMs);
    if (reply === 'free') return null;
    const [, token = '', remainingMs, holder = '', sinceUs, ...instance] = reply.split(' ');
    return {
      holder,
      instance: instance.join(' '),
      fencingToken: BigInt(token),
      sinceMs: Math.floor(Number(sinceUs) / 1_000),
      remainingMs: Number(remainingMs),
    };
  }

  async forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const request: ScriptRequest = { key, holder: String(fencingToken), command: 'forceRelease' };
    return (await this.#runOne(request, timeoutMs)) === 'released';
  }

  async readTicks(key: string, timeoutMs: number): Promise<TickState> {
    return parseTicks(await this.#runOne({ key, holder: '', command: 'readTicks' }, timeoutMs));
  }

  async registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    return parseTicks(await this.#runOne({ key, holder: '', command: 'registerTicks' }, timeoutMs));
  }

  async appendHistory(key: string, text: string, timeoutMs: number): Promise<void> {
    await this.#withRunner((runner) => appendHistory(runner, key, text), timeoutMs);
  }

  readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    return this.#withRunner((runner) => readHistory(runner, key), timeoutMs);
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    return this.#notifications.listen(listener);
  }

  async check(): Promise<void> {
    const server = await this.#connection.open();
    // In a Cluster, a replica redirects to its primary.
    if (!this.#isCluster) await checkIsPrimary(server);
    await this.#replicaAcknowledgement?.check(server);
  }

  close(): Promise<void> {
    this.#connection.close();
    this.#notifications.close();
    return Promise.resolve();
  }

  #parseAcquireReply(reply: Reply): AcquireResult {
    if (typeof reply !== 'string') return reply;
    if (reply.startsWith(GRANTED)) return parseGrantedReply(reply);
    const [kind, first = '', second, third] = reply.split(' ');
    if (kind === 'taken') {
      const taken = { kind, remainingMs: Number(first) } as const;
      if (!second) return taken;
      this.#notifications.start();
      return { ...taken, isQueued: true, ...(this.#notifications.isSubscribed && { willBeNotified: true }) };
    }
    if (kind === 'refused') {
      return toTickRefused(first as TickRefused['reason'], Number(second), third);
    }
    return unknownResult(new Error('the request reached Redis too late, or its clock was set'));
  }

  async #withRunner<T>(run: (runner: ScriptRunner) => Promise<T>, timeoutMs: number): Promise<T> {
    const giveUpAtMs = systemClock.monotonicMs() + timeoutMs;
    try {
      const runner = this.#connection.ready ?? (await this.#connection.open());
      if (systemClock.monotonicMs() > giveUpAtMs) throw new StoreTimeoutError(timeoutMs);
      return await run(runner);
    } catch (cause) {
      throw this.#connection.explain(cause);
    }
  }

  async #runOne(request: ScriptRequest, timeoutMs: number): Promise<string> {
    const [reply] = await this.#runAll([request], timeoutMs);
    if (typeof reply === 'string') return reply;
    throw (reply as UnknownResult).cause;
  }

  #runAll(requests: readonly ScriptRequest[], timeoutMs: number): Promise<readonly Reply[]> {
    if (!this.#isCluster) return this.#runOnSlot(ONLY_SLOT, requests, timeoutMs);
    // In a Cluster, all keys of a call must be on one slot.
    return runPerSlot(
      requests,
      ({ key }) => slotOf(this.#keyPrefix + lockKeyOf(key)),
      (group, slot) => this.#runOnSlot(slot, group, timeoutMs),
      (afterMs) => unknownResult(new StoreTimeoutError(afterMs)),
    );
  }

  #runOnSlot(slot: number, requests: readonly ScriptRequest[], timeoutMs: number): Promise<readonly Reply[]> {
    const maxBatchSize = requests.every(isRenewal) ? MAX_RENEWAL_BATCH_SIZE : MAX_BATCH_SIZE;
    if (requests.length <= maxBatchSize) return this.#runChunk(slot, requests, timeoutMs);
    const chunks: Promise<readonly Reply[]>[] = [];
    for (let from = 0; from < requests.length; from += maxBatchSize) {
      chunks.push(this.#runChunk(slot, requests.slice(from, from + maxBatchSize), timeoutMs));
    }
    return Promise.all(chunks).then((replies) => replies.flat());
  }

  async #runChunk(
    slot: number,
    requests: readonly ScriptRequest[],
    timeoutMs: number,
  ): Promise<readonly Reply[]> {
    const giveUpAtMs = systemClock.monotonicMs() + timeoutMs;
    const keysPerRequest = requests.length >= LARGE_BATCH_SIZE || requests.every(isRenewal) ? 1 : 3;
    let replies = await this.#attempt(requests, { timeoutMs, giveUpAtMs, keysPerRequest, slot });
    // While a slot migrates between two nodes, it serves calls with a single key only.
    if (this.#isCluster && replies.some(isSlotMigrating))
      replies = await this.#attempt(requests, { timeoutMs, giveUpAtMs, keysPerRequest: 1, slot });
    if (!replies.some(needsRetry)) return replies;
    const toRetry = requests.filter((_, index) => needsRetry(replies[index]));
    const retriedReplies = (
      await this.#attempt(toRetry, { timeoutMs, giveUpAtMs, keysPerRequest: 3, slot })
    ).values();
    return replies.map((reply) => (needsRetry(reply) ? (retriedReplies.next().value ?? reply) : reply));
  }

  async #attempt(
    requests: readonly ScriptRequest[],
    { timeoutMs, giveUpAtMs, keysPerRequest, slot }: AttemptOptions,
  ): Promise<readonly Reply[]> {
    let wasSent = false;
    try {
      const runner = this.#connection.ready ?? (await this.#connection.open());
      const sentAtMs = systemClock.monotonicMs();
      if (sentAtMs > giveUpAtMs) throw new StoreTimeoutError(timeoutMs);
      wasSent = true;
      const { channel } = this.#notifications;
      const notAfterUs = this.#latestUs(slot, giveUpAtMs);
      const acknowledgedRunner = this.#replicaAcknowledgement?.runnerFor(runner, requests);
      const running = runScript(acknowledgedRunner ?? runner, requests, {
        notAfterUs,
        channel,
        keysPerRequest,
      });
      const [serverTimeUs = '', ...outcome] = await this.#connection.watch(running);
      this.#clockAheadUs[slot] = Number(serverTimeUs) - sentAtMs * 1_000;
      const granted: Granted = { kind: 'granted', fencingToken: BigInt(serverTimeUs) };
      const confirmed = acknowledgedRunner ? await acknowledgedRunner.confirm(outcome) : outcome;
      return confirmed.map((reply) => (reply === granted.kind ? granted : reply));
    } catch (cause) {
      const outcome = this.#connection.explain(cause);
      const lost = isConnectionLost(cause) ? connectionLostResult(outcome) : unknownResult(outcome);
      return requests.map(() => (wasSent ? lost : neverSentResult(outcome)));
    }
  }

  /** The server's time at `atMs` of our clock; 0 before the first reply. Never too early, and too late by at most a round trip. */
  #latestUs(slot: number, atMs: number): number {
    const aheadUs = this.#clockAheadUs[slot];
    return aheadUs === undefined ? 0 : aheadUs + atMs * 1_000;
  }
}

/** Keeps locks in Redis, Valkey, a Sentinel group or a Cluster. See {@link RedisBackend}. */
export const redisBackend = (options: RedisBackendOptions): LockBackend => new RedisBackend(options);

/** Acquisitions of one process mostly have the same parameters, and then share the encoded command. */
function addAcquireRequests(requests: ScriptRequest[], acquire: readonly AcquireRequest[]): void {
  let previous: AcquireRequest | undefined;
  let command = '';
  for (const request of acquire) {
    if (!previous || !haveSameCommand(previous, request)) command = encodeAcquire(request);
    previous = request;
    requests.push({ key: request.key, holder: request.holder, command });
  }
}

const haveSameCommand = (one: AcquireRequest, other: AcquireRequest) =>
  one.leaseMs === other.leaseMs &&
  one.tokenCount === other.tokenCount &&
  one.retryWithinMs === other.retryWithinMs &&
  one.instance === other.instance &&
  one.tick === other.tick;

const encodeAcquire = ({ leaseMs, tokenCount = 1, retryWithinMs = 0, tick, instance }: AcquireRequest) =>
  tick
    ? `claim ${leaseMs} ${tokenCount} 0 ${encodeTick(tick)} ${instance}`
    : `acquire ${leaseMs} ${tokenCount} ${retryWithinMs} ${instance}`;

const isRenewal = ({ command }: ScriptRequest) => command.startsWith(RENEW);

function encodeTick(tick: TickClaim): string {
  const { tickMs, maxEarlyMs, staleAfterMs, maxAttempts = 1, cleanUp } = tick;
  const rememberMs = Math.ceil(cleanUp?.afterMs ?? TICK_MEMORY_MS);
  const limits = [tickMs, maxEarlyMs, Math.min(staleAfterMs, Number.MAX_SAFE_INTEGER), maxAttempts];
  return [...limits, rememberMs].join(' ');
}

/** `granted token`, and for a tick also the attempt. */
function parseGrantedReply(reply: string): AcquireResult {
  const [token = '', attempt] = reply.slice(GRANTED.length).split(' ');
  const fencingToken = BigInt(token);
  return attempt === undefined
    ? { kind: 'granted', fencingToken }
    : { kind: 'granted', fencingToken, attempt: Number(attempt) };
}

/** The columns are those of a lock; the last one is blank if no tick was claimed. */
function parseTicks(reply: string): TickState {
  const [nowUs, heldForMs, aliveUntilUs, tick = ''] = reply.split(' ');
  return {
    nowMs: Number(nowUs) / 1_000,
    claimed: tick === '' ? undefined : { tickMs: Number(tick.slice(0, 13)), attempt: Number(tick.slice(13)) },
    heldForMs: Number(heldForMs),
    aliveUntilMs: Number(aliveUntilUs) / 1_000,
  };
}

function toTickRefused(
  reason: TickRefused['reason'],
  aheadMs: number,
  more: string | undefined,
): TickRefused {
  const refused = { kind: 'refused', reason, aheadMs } as const;
  if (!more) return refused;
  return reason === 'unfinished'
    ? { ...refused, unfinishedMs: Number(more) }
    : { ...refused, retryInMs: Number(more) };
}

/**
 * `needsQueue`: the request needs all three keys. `late`: our estimate of the server's clock was wrong because that clock was
 * set; this reply has corrected it.
 */
const needsRetry = (reply: Reply | undefined) => reply === 'late' || reply === 'needsQueue';

/** The keys of the call are on two nodes: ioredis is redirected from one to the other until it gives up. */
const isSlotMigrating = (reply: Reply) =>
  typeof reply !== 'string' &&
  reply.kind === 'unknown' &&
  /^Too many Cluster redirections.*\b(TRYAGAIN|ASK|MOVED)\b/.test(formatReason(reply.cause));

function parseRenewReply(reply: Reply): RenewResult {
  if (typeof reply !== 'string') return reply as UnknownResult;
  const [kind, token] = reply.split(' ') as ['renewed' | 'lost', string?];
  return token === undefined ? { kind } : { kind: 'renewed', fencingToken: BigInt(token) };
}

const parseReleaseReply = (reply: Reply): ReleaseResult =>
  typeof reply === 'string' ? { kind: reply as 'released' | 'gone' } : (reply as UnknownResult);
