import type { Granted } from '../../../core/backend-results.js';
import { systemClock } from '../../../core/clock.js';
import { formatReason } from '../../../core/format.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout.js';
import {
  type UnknownResult,
  connectionLostResult,
  neverSentResult,
  unknownResult,
} from '../../../core/unknown-result.js';
import { chunksOf } from '../chunks.js';
import type { ServerClient } from '../client-factory.js';
import { isConnectionLost } from '../redis-errors.js';
import { type Script, isScriptUnknown } from '../script-runner.js';
import { runPerSlot, slotOf } from './cluster-slots.js';
import { lockKeyOf } from './lock-keys.js';
import type { RedisConnection } from './redis-connection.js';
import type { ReplicaAcknowledgement } from './replica-acknowledgement.js';
import { type ScriptReply, parseCallReply } from './script-replies.js';
import { runLoneRequest, runScript } from './script-call.js';
import { type ScriptRequest, isRenewal } from './script-requests.js';

/**
 * More requests in one call would block the other clients of the server for too long. Several calls are also faster than one:
 * while the server works on a call, this process builds the next one and reads the replies of the last.
 */
const MAX_CHUNK_SIZE = 64;
/** Larger, because no caller waits for a renewal. */
const MAX_RENEWAL_CHUNK_SIZE = 200;
/** Batches from this size are sent without the keys of the wait queues first, because contention is rare in them. */
const LARGE_CHUNK_SIZE = 8;

/** Which slot requests are for, and until when they may be sent. */
interface SendOptions {
  readonly slot: number;
  readonly timeoutMs: number;
  readonly giveUpAtMs: number;
}

interface RequestSenderParts {
  readonly connection: RedisConnection;
  readonly script: Script;
  /** The channel on which this process receives notifications. */
  readonly channel: string;
  readonly isCluster: boolean;
  readonly keyPrefix: string;
  readonly replicaAcknowledgement: ReplicaAcknowledgement | undefined;
}

/** Sends requests to the lock script: in calls of a limited size, and again if they were refused for a technical reason. */
export class RequestSender {
  readonly #parts: RequestSenderParts;
  /** Neither a Cluster nor replicas make a call more than one command. */
  readonly #isSimple: boolean;
  /**
   * By slot, as of the newest reply: how far the server's clock is ahead of the monotonic clock of this process, at most, and
   * too much by a round trip at most. In a Cluster each node has a clock of its own.
   */
  readonly #clockAheadUs: number[] = [];

  constructor(parts: RequestSenderParts) {
    this.#parts = parts;
    this.#isSimple = !parts.isCluster && !parts.replicaAcknowledgement;
  }

  /** @throws StoreTimeoutError if the time was over before the client was connected */
  async clientWithin(
    timeoutMs: number,
    giveUpAtMs = systemClock.monotonicMs() + timeoutMs,
  ): Promise<ServerClient> {
    const { connection } = this.#parts;
    const client = connection.ready ?? (await connection.open());
    if (systemClock.monotonicMs() > giveUpAtMs) throw new StoreTimeoutError(timeoutMs);
    return client;
  }

  /**
   * Returns a reply for each request, in their order. Never rejects. In a Cluster, `onReply` receives each reply as soon as its
   * node has sent it.
   */
  send(
    requests: readonly ScriptRequest[],
    timeoutMs: number,
    onReply?: (reply: ScriptReply, index: number) => void,
  ): Promise<readonly ScriptReply[]> {
    const [request] = requests;
    const client = requests.length === 1 && this.#isSimple ? this.#parts.connection.ready : undefined;
    if (client && request) return this.#sendLone(client, request, within(timeoutMs));
    if (!this.#parts.isCluster) return this.#runChunks(requests, within(timeoutMs));
    // In a Cluster, all keys of a call must be on one slot.
    return runPerSlot(requests, {
      slotOfMember: ({ key }) => slotOf(this.#parts.keyPrefix + lockKeyOf(key)),
      run: (group, slot) => this.#runChunks(group, within(timeoutMs, slot)),
      timeoutMs,
      onResult: onReply,
    });
  }

  /** Most calls have a single request for a key without contention, so this path has as few promises as possible. */
  async #sendLone(
    client: ServerClient,
    request: ScriptRequest,
    options: SendOptions,
  ): Promise<readonly ScriptReply[]> {
    const { script, channel, connection } = this.#parts;
    const sentAtMs = systemClock.monotonicMs();
    connection.onRequest();
    let reply: unknown;
    try {
      reply = await runLoneRequest(client, request, {
        script,
        channel,
        notAfterUs: this.#notAfterUs(options),
      });
    } catch (cause) {
      if (isScriptUnknown(cause)) return await this.#runChunk([request], options);
      return [this.#lostResult(cause)];
    } finally {
      connection.onReply();
    }
    const [timeUs, outcome] = parseCallReply(reply, [request]);
    this.#clockAheadUs[options.slot] = Number(timeUs) - sentAtMs * 1_000;
    if (needsRetry(outcome)) return this.#runChunk([request], options);
    return [outcome === 'granted' ? { kind: 'granted', fencingToken: BigInt(timeUs) } : outcome];
  }

  #runChunks(requests: readonly ScriptRequest[], options: SendOptions): Promise<readonly ScriptReply[]> {
    const maxChunkSize = requests.every(isRenewal) ? MAX_RENEWAL_CHUNK_SIZE : MAX_CHUNK_SIZE;
    if (requests.length <= maxChunkSize) return this.#runChunk(requests, options);
    const chunks = chunksOf(requests, maxChunkSize);
    return Promise.all(chunks.map((chunk) => this.#runChunk(chunk, options))).then((replies) =>
      replies.flat(),
    );
  }

  async #runChunk(requests: readonly ScriptRequest[], options: SendOptions): Promise<readonly ScriptReply[]> {
    const keysPerRequest = requests.length >= LARGE_CHUNK_SIZE || requests.every(isRenewal) ? 1 : 3;
    let replies = await this.#send(requests, keysPerRequest, options);
    // While a slot migrates between two nodes, it serves calls with a single key only.
    if (this.#parts.isCluster && replies.some(isSlotMigrating))
      replies = await this.#send(requests, 1, options);
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
      const client = await this.clientWithin(options.timeoutMs, options.giveUpAtMs);
      const sentAtMs = systemClock.monotonicMs();
      wasSent = true;
      const { script, channel, connection, replicaAcknowledgement } = this.#parts;
      const acknowledgedRunner = replicaAcknowledgement?.runnerFor(client, requests);
      const runner = acknowledgedRunner ?? client;
      const notAfterUs = this.#notAfterUs(options);
      const running = runScript(runner, requests, { script, notAfterUs, channel, keysPerRequest });
      const [serverTimeUs, ...outcome] = parseCallReply(await connection.watch(running), requests);
      this.#clockAheadUs[options.slot] = Number(serverTimeUs) - sentAtMs * 1_000;
      const granted: Granted = { kind: 'granted', fencingToken: BigInt(serverTimeUs) };
      const confirmed = acknowledgedRunner ? await acknowledgedRunner.confirm(outcome) : outcome;
      return confirmed.map((reply) => (reply === granted.kind ? granted : reply));
    } catch (cause) {
      const failure = wasSent
        ? this.#lostResult(cause)
        : neverSentResult(this.#parts.connection.explain(cause));
      return requests.map(() => failure);
    }
  }

  #notAfterUs({ slot, giveUpAtMs }: SendOptions): number | undefined {
    const aheadUs = this.#clockAheadUs[slot];
    return aheadUs === undefined ? undefined : aheadUs + giveUpAtMs * 1_000;
  }

  /** The result of a request that was sent and got no reply. */
  #lostResult(cause: unknown): UnknownResult {
    const outcome = this.#parts.connection.explain(cause);
    return isConnectionLost(cause) ? connectionLostResult(outcome) : unknownResult(outcome);
  }
}

/** A server without Cluster counts as slot 0. */
const within = (timeoutMs: number, slot = 0): SendOptions => ({
  slot,
  timeoutMs,
  giveUpAtMs: systemClock.monotonicMs() + timeoutMs,
});

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
