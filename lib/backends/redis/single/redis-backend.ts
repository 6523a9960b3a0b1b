import type {
  BatchResult,
  Granted,
  LockBackend,
  ReleaseNotice,
  RequestBatch,
} from '../../../core/backend.js';
import type { ListRequest, LockPage, LockRecord } from '../../../core/lock-record.js';
import type { TickState } from '../../../core/tick.js';
import { connectionLostResult, neverSentResult, unknownResult } from '../../../core/unknown-result.js';
import { systemClock } from '../../../core/clock.js';
import { formatReason } from '../../../core/format.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout.js';
import {
  type RedisSource,
  type ServerClient,
  isCluster,
  isConnectionLost,
  keyPrefixOf,
  notificationConnection,
} from '../connection.js';
import { DEFAULT_TOKEN_MEMORY_MS, type TokenMemoryOptions } from '../../../core/token-memory.js';
import { appendHistory, readHistory } from '../history.js';
import { listByScan } from '../key-scan.js';
import { Notifications } from '../notifications.js';
import { type Script, scriptOf } from '../script-runner.js';
import { checkRedisSource } from '../source-options.js';
import { runPerSlot, slotOf } from './cluster-slots.js';
import {
  type ScriptReply,
  type ScriptRequest,
  encodeBatch,
  isRenewal,
  lockKeyOf,
  parseLockRecord,
  parseNotification,
  parseReplies,
  parseTickState,
  runScript,
} from './commands.js';
import { lockScript } from './lock-script.js';
import { scanTargetOf } from './scan-target.js';
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

/** How to connect to Redis, how many replicas must acknowledge a grant, and for how long an unused key is remembered. */
export type RedisBackendOptions = RedisSource & ReplicaOptions & TokenMemoryOptions;

/** Which slot requests are for, and until when they may be sent. */
interface SendOptions {
  readonly slot: number;
  readonly timeoutMs: number;
  readonly giveUpAtMs: number;
}

/**
 * Keeps locks in one Redis (6.2 or newer), Valkey, Sentinel group or Cluster, over its own connection.
 *
 * Locks are exclusive as long as the server keeps the writes that it acknowledged (no restart without persistence, no
 * failover to a replica that lags behind) and its clock does not jump. Fencing tokens keep growing even otherwise.
 */
export class RedisBackend implements LockBackend {
  readonly name = 'redis';
  readonly preferredBatchSize = 32;
  readonly #connection: Connection;
  readonly #notifications: Notifications;
  readonly #isCluster: boolean;
  readonly #script: Script;
  readonly #keyPrefix: string;
  readonly #replicaAcknowledgement: ReplicaAcknowledgement | undefined;
  /**
   * By slot, as of the newest reply: how far the server's clock is ahead of the monotonic clock of this process, at most, and
   * too much by a round trip at most. In a Cluster each node has a clock of its own.
   */
  readonly #clockAheadUs: number[] = [];

  constructor(source: RedisBackendOptions) {
    checkRedisSource(source);
    this.#keyPrefix = keyPrefixOf(source);
    const parse = (message: string) => parseNotification(message, this.#keyPrefix);
    this.#notifications = new Notifications({ connect: () => notificationConnection(source), parse });
    this.#isCluster = 'client' in source && isCluster(source.client);
    const { minReplicas, replicaTimeoutMs, tokenMemoryMs = DEFAULT_TOKEN_MEMORY_MS } = source;
    this.#script = scriptOf(lockScript(tokenMemoryMs));
    this.#connection = new Connection(source, replicaTimeoutMs);
    this.#replicaAcknowledgement =
      minReplicas === undefined ? undefined : new ReplicaAcknowledgement(minReplicas, replicaTimeoutMs);
  }

  async execute(batch: RequestBatch, timeoutMs: number): Promise<BatchResult> {
    this.#notifications.open();
    const replies = await this.#runAll(encodeBatch(batch), timeoutMs);
    return parseReplies(batch, replies, () => {
      this.#notifications.start();
      return this.#notifications.isSubscribed;
    });
  }

  async inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return parseLockRecord(await this.#runOne({ key, holder: '', command: 'inspect' }, timeoutMs));
  }

  list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    const inspectAll = async (keys: readonly string[]) => {
      const requests = keys.map((key) => ({ key, holder: '', command: 'inspect' }));
      return (await this.#runAll(requests, timeoutMs)).map((reply) => parseLockRecord(textOf(reply)));
    };
    const listOn = (client: ServerClient) =>
      listByScan(request, scanTargetOf(client, this.#keyPrefix, inspectAll), timeoutMs);
    return this.#withClient(listOn, timeoutMs);
  }

  async forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const request: ScriptRequest = { key, holder: String(fencingToken), command: 'forceRelease' };
    return (await this.#runOne(request, timeoutMs)) === 'released';
  }

  async readTicks(key: string, timeoutMs: number): Promise<TickState> {
    return parseTickState(await this.#runOne({ key, holder: '', command: 'readTicks' }, timeoutMs));
  }

  async registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    return parseTickState(await this.#runOne({ key, holder: '', command: 'registerTicks' }, timeoutMs));
  }

  async appendHistory(key: string, text: string, timeoutMs: number): Promise<void> {
    await this.#withClient((client) => appendHistory(client, key, text), timeoutMs);
  }

  readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    return this.#withClient((client) => readHistory(client, key), timeoutMs);
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

  async #withClient<T>(run: (client: ServerClient) => Promise<T>, timeoutMs: number): Promise<T> {
    try {
      return await run(await this.#clientWithin(within(timeoutMs)));
    } catch (cause) {
      throw this.#connection.explain(cause);
    }
  }

  /** @throws StoreTimeoutError if the time was over before the client was connected */
  async #clientWithin({ timeoutMs, giveUpAtMs }: SendOptions): Promise<ServerClient> {
    const client = this.#connection.ready ?? (await this.#connection.open());
    if (systemClock.monotonicMs() > giveUpAtMs) throw new StoreTimeoutError(timeoutMs);
    return client;
  }

  async #runOne(request: ScriptRequest, timeoutMs: number): Promise<string> {
    const [reply] = await this.#runAll([request], timeoutMs);
    return textOf(reply);
  }

  #runAll(requests: readonly ScriptRequest[], timeoutMs: number): Promise<readonly ScriptReply[]> {
    if (!this.#isCluster) return this.#runChunks(requests, within(timeoutMs));
    // In a Cluster, all keys of a call must be on one slot.
    return runPerSlot(
      requests,
      ({ key }) => slotOf(this.#keyPrefix + lockKeyOf(key)),
      (group, slot) => this.#runChunks(group, within(timeoutMs, slot)),
      (afterMs) => unknownResult(new StoreTimeoutError(afterMs)),
    );
  }

  #runChunks(requests: readonly ScriptRequest[], options: SendOptions): Promise<readonly ScriptReply[]> {
    const maxBatchSize = requests.every(isRenewal) ? MAX_RENEWAL_BATCH_SIZE : MAX_BATCH_SIZE;
    if (requests.length <= maxBatchSize) return this.#runChunk(requests, options);
    const chunks: Promise<readonly ScriptReply[]>[] = [];
    for (let from = 0; from < requests.length; from += maxBatchSize) {
      chunks.push(this.#runChunk(requests.slice(from, from + maxBatchSize), options));
    }
    return Promise.all(chunks).then((replies) => replies.flat());
  }

  async #runChunk(requests: readonly ScriptRequest[], options: SendOptions): Promise<readonly ScriptReply[]> {
    const keysPerRequest = requests.length >= LARGE_BATCH_SIZE || requests.every(isRenewal) ? 1 : 3;
    let replies = await this.#send(requests, keysPerRequest, options);
    // While a slot migrates between two nodes, it serves calls with a single key only.
    if (this.#isCluster && replies.some(isSlotMigrating)) replies = await this.#send(requests, 1, options);
    if (!replies.some(needsRetry)) return replies;
    const toRetry = requests.filter((_, index) => needsRetry(replies[index]));
    const retriedReplies = (await this.#send(toRetry, 3, options)).values();
    return replies.map((reply) => (needsRetry(reply) ? (retriedReplies.next().value ?? reply) : reply));
  }

  async #send(
    requests: readonly ScriptRequest[],
    keysPerRequest: 1 | 3,
    options: SendOptions,
  ): Promise<readonly ScriptReply[]> {
    let wasSent = false;
    try {
      const client = await this.#clientWithin(options);
      const sentAtMs = systemClock.monotonicMs();
      wasSent = true;
      const { channel } = this.#notifications;
      const aheadUs = this.#clockAheadUs[options.slot];
      const notAfterUs = aheadUs === undefined ? undefined : aheadUs + options.giveUpAtMs * 1_000;
      const acknowledgedRunner = this.#replicaAcknowledgement?.runnerFor(client, requests);
      const runner = acknowledgedRunner ?? client;
      const running = runScript(runner, requests, {
        script: this.#script,
        notAfterUs,
        channel,
        keysPerRequest,
      });
      const [serverTimeUs = '', ...outcome] = await this.#connection.watch(running);
      this.#clockAheadUs[options.slot] = Number(serverTimeUs) - sentAtMs * 1_000;
      const granted: Granted = { kind: 'granted', fencingToken: BigInt(serverTimeUs) };
      const confirmed = acknowledgedRunner ? await acknowledgedRunner.confirm(outcome) : outcome;
      return confirmed.map((reply) => (reply === granted.kind ? granted : reply));
    } catch (cause) {
      const outcome = this.#connection.explain(cause);
      const lost = isConnectionLost(cause) ? connectionLostResult(outcome) : unknownResult(outcome);
      return requests.map(() => (wasSent ? lost : neverSentResult(outcome)));
    }
  }
}

/** Keeps locks in Redis, Valkey, a Sentinel group or a Cluster. See {@link RedisBackend}. */
export const redisBackend = (options: RedisBackendOptions): LockBackend => new RedisBackend(options);

/** A server without Cluster counts as slot 0. */
const within = (timeoutMs: number, slot = 0): SendOptions => ({
  slot,
  timeoutMs,
  giveUpAtMs: systemClock.monotonicMs() + timeoutMs,
});

/** @throws the reason why the reply is unknown */
function textOf(reply: ScriptReply | undefined): string {
  if (typeof reply === 'string') return reply;
  throw (reply as { readonly cause: unknown }).cause;
}

/**
 * `needsQueue`: the request needs all three keys. `late`: our estimate of the server's clock was wrong because that clock was
 * set; this reply has corrected it.
 */
const needsRetry = (reply: ScriptReply | undefined) => reply === 'late' || reply === 'needsQueue';

/** The keys of the call are on two nodes: ioredis is redirected from one to the other until it gives up. */
const isSlotMigrating = (reply: ScriptReply) =>
  typeof reply !== 'string' &&
  reply.kind === 'unknown' &&
  /^Too many Cluster redirections.*\b(TRYAGAIN|ASK|MOVED)\b/.test(formatReason(reply.cause));
