import type { BatchResult, LockBackend, OnResult, RequestBatch } from '../../../core/backend.js';
import type { ReleaseNotice } from '../../../core/store-notices.js';
import type { ListRequest, LockPage, LockRecord } from '../../../core/lock-record.js';
import { systemClock } from '../../../core/clock.js';
import { rejectWhenRefused } from '../../../core/requests/store-timeout.js';
import type { TickState } from '../../../core/tick.js';
import { type ServerClient, createNotificationClient } from '../client-factory.js';
import { isCluster, keyPrefixOf } from '../redis-source.js';
import { appendHistory, readHistory } from '../run-history.js';
import { listByScan } from '../key-scan.js';
import { Notifications } from '../notifications.js';
import { scriptOf } from '../script-runner.js';
import { lockScript } from './lock-script.js';
import { RedisConnection, checkIsPrimary, checkIsWritable } from './redis-connection.js';
import { type RedisBackendOptions, resolveRedisOptions } from './redis-options.js';
import { ReplicaAcknowledgement } from './replica-acknowledgement.js';
import { RequestSender } from './request-sender.js';
import { scanTargetOf } from './scan-target.js';
import {
  type ScriptReply,
  createReplyReporter,
  lateRequestError,
  parseLockRecord,
  parseNotification,
  parseReplies,
  parseTickState,
} from './script-replies.js';
import { RequestEncoder, type ScriptRequest, encodePause } from './script-requests.js';

/**
 * Keeps locks in one Redis (6.2 or newer), Valkey, Sentinel group or Cluster, over its own connection.
 *
 * Locks are exclusive as long as the server keeps the writes that it acknowledged (no restart without persistence, no
 * failover to a replica that lags behind) and its clock does not jump. Fencing tokens keep growing even otherwise.
 */
export class RedisBackend implements LockBackend {
  readonly name = 'redis';
  readonly preferredBatchSize = 32;
  readonly #connection: RedisConnection;
  readonly #notifications: Notifications;
  readonly #isCluster: boolean;
  readonly #keyPrefix: string;
  readonly #replicaAcknowledgement: ReplicaAcknowledgement | undefined;
  readonly #encoder = new RequestEncoder();
  readonly #sender: RequestSender;

  constructor(options: RedisBackendOptions) {
    const { source, minReplicas, replicaTimeoutMs, tokenMemoryMs } = resolveRedisOptions(options);
    const keyPrefix = keyPrefixOf(source);
    this.#keyPrefix = keyPrefix;
    const parse = (message: string) => parseNotification(message, keyPrefix);
    this.#notifications = new Notifications({ connect: () => createNotificationClient(source), parse });
    this.#isCluster = 'client' in source && isCluster(source.client);
    this.#connection = new RedisConnection(source, replicaTimeoutMs);
    this.#replicaAcknowledgement =
      minReplicas === undefined ? undefined : new ReplicaAcknowledgement(minReplicas, replicaTimeoutMs);
    this.#sender = new RequestSender({
      connection: this.#connection,
      script: scriptOf(lockScript(tokenMemoryMs)),
      channel: this.#notifications.channel,
      isCluster: this.#isCluster,
      keyPrefix,
      replicaAcknowledgement: this.#replicaAcknowledgement,
    });
  }

  get isReady(): boolean {
    return this.#connection.ready !== undefined;
  }

  async execute(batch: RequestBatch, timeoutMs: number, onResult?: OnResult): Promise<BatchResult> {
    this.#notifications.open();
    const onReply =
      onResult && this.#isCluster ? createReplyReporter(batch, onResult, this.#onQueued) : undefined;
    const replies = await this.#sender.send(this.#encoder.encode(batch), timeoutMs, onReply);
    return parseReplies(batch, replies, this.#onQueued);
  }

  /** Returns whether a queued request will be notified of a release. */
  readonly #onQueued = (): boolean => {
    this.#notifications.start();
    return this.#notifications.isSubscribed;
  };

  async inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return parseLockRecord(await this.#runOne({ key, holder: '', command: 'inspect' }, timeoutMs));
  }

  list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    const inspectAll = async (keys: readonly string[]) => {
      const requests = keys.map((key) => ({ key, holder: '', command: 'inspect' }));
      return (await this.#sender.send(requests, timeoutMs)).map((reply) => parseLockRecord(textOf(reply)));
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

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    const giveUpAtMs = systemClock.monotonicMs() + timeoutMs;
    return rejectWhenRefused(systemClock, timeoutMs, async (onSend) => {
      const { nowMs } = await this.readTicks(key, timeoutMs);
      const leftMs = giveUpAtMs - systemClock.monotonicMs();
      onSend();
      const request = encodePause(key, isPaused, nowMs + leftMs);
      if ((await this.#runOne(request, leftMs)) === 'late') throw lateRequestError();
    });
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

  async check(_timeoutMs: number, key?: string): Promise<void> {
    const server = await this.#connection.open();
    // In a Cluster, a replica redirects to its primary.
    if (!this.#isCluster) await checkIsPrimary(server);
    if (key !== undefined) await checkIsWritable(server, key);
    await this.#replicaAcknowledgement?.check(server);
  }

  close(): Promise<void> {
    this.#connection.close();
    this.#notifications.close();
    return Promise.resolve();
  }

  async #withClient<T>(run: (client: ServerClient) => Promise<T>, timeoutMs: number): Promise<T> {
    try {
      return await run(await this.#sender.clientWithin(timeoutMs));
    } catch (cause) {
      throw this.#connection.explain(cause);
    }
  }

  async #runOne(request: ScriptRequest, timeoutMs: number): Promise<string> {
    const [reply] = await this.#sender.send([request], timeoutMs);
    return textOf(reply);
  }
}

/** Keeps locks in Redis, Valkey, a Sentinel group or a Cluster. See {@link RedisBackend}. */
export const redisBackend = (options: RedisBackendOptions): LockBackend => new RedisBackend(options);

/** @throws the reason why the reply is unknown */
function textOf(reply: ScriptReply | undefined): string {
  if (typeof reply === 'string') return reply;
  throw (reply as { readonly cause: unknown }).cause;
}
