import type { Redis } from 'ioredis';
import { type Moment, momentOf, systemClock } from '../../../../core/clock.js';
import { LockConfigError } from '../../../../core/errors.js';
import { formatReason } from '../../../../core/format.js';
import { isReplicaError, toReadableError } from '../../redis-errors.js';
import { type RedisSource, addressOf, keySpaceOf } from '../../redis-source.js';
import { PendingReleases } from '../replication/pending-releases.js';
import { type CallReply, MAX_CALL_MS, ServerCall, type ServerRequest } from '../server-call.js';
import { type Handshake, readServerState } from './handshake.js';
import { ServerClock } from './server-clocks.js';
import { ServerConnection } from './server-connection.js';
import { ServerReplies } from './server-replies.js';
import { ServerVote } from './server-vote.js';

/** Receives the outcome of one call: exactly one of the two is called, once. */
export interface ReplyListener {
  onReply(server: QuorumServer, callReply: CallReply): void;
  /** No reply will come. The requests may have taken effect, or may still do so. */
  onFailure(server: QuorumServer): void;
}

interface QuorumServerOptions {
  readonly index: number;
  readonly source: RedisSource;
  /** The longest lease. A release that is pending for longer is dropped, because its lease has ended. */
  readonly maxLeaseMs: number;
  /** How long a server that may have forgotten locks has no vote. */
  readonly quarantineMs: number;
  readonly ballotToleranceUs: number;
  readonly channel: string;
  /** The server was connected, or its connection was lost. */
  readonly onHandshakeChange: () => void;
}

/** One server of a quorum: whether it has a vote, and what is sent to it. */
export class QuorumServer {
  readonly index: number;
  /** Stands for the server in sets of servers. */
  readonly bit: number;
  /** `host:port`, for messages. */
  readonly name: string;
  readonly clock = new ServerClock();
  readonly vote: ServerVote;
  /** Which locks of the server are meant: its database and key prefix. */
  readonly #keySpace: string;
  readonly replies = new ServerReplies();
  readonly #options: QuorumServerOptions;
  readonly connection: ServerConnection;
  readonly #pendingReleases: PendingReleases;
  #handshake: Handshake | undefined;
  #duplicateOf: QuorumServer | undefined;
  #isReconnecting = false;
  /** The last error that the server returned. */
  #refusal: unknown;

  constructor(options: QuorumServerOptions) {
    this.#options = options;
    this.index = options.index;
    this.bit = 2 ** options.index;
    this.name = addressOf(options.source);
    this.#keySpace = keySpaceOf(options.source);
    this.vote = new ServerVote(options.quarantineMs);
    this.#pendingReleases = new PendingReleases(this, options.maxLeaseMs);
    this.connection = new ServerConnection(options.source, {
      onHandshake: (handshake) => this.#onHandshake(handshake),
      onReady: () => this.#onReady(),
      onLost: () => this.#onLost(),
    });
  }

  get runId(): string | undefined {
    return this.#handshake?.runId;
  }

  /** Its names in server lists: that of its present run, followed by those of the earlier runs whose data it kept. */
  get listNames(): readonly string[] {
    return this.vote.runs.map((run) => `${run}/${this.#keySpace}`);
  }

  /** Whether the server's replies count now. */
  get hasVote(): boolean {
    return this.hasVoteSince(systemClock.monotonicMs());
  }

  /** Whether the server's reply to a request that was sent at `ms` counts. */
  hasVoteSince(ms: number): boolean {
    return this.vote.countsSince(ms);
  }

  /** Whether a call may be sent. After an overdue reply nothing more is sent, so that calls do not pile up. */
  get isReachable(): boolean {
    return this.connection.client !== undefined && !this.replies.isSilent;
  }

  /** The server had a vote, its connection was silent or lost, and another connection is being made. */
  get isReconnecting(): boolean {
    return this.#isReconnecting;
  }

  /** A fault that needs a change of the configuration. */
  get configError(): LockConfigError | undefined {
    if (this.#duplicateOf) {
      return new LockConfigError(
        `Expected independent Redis servers in redlockBackend(), got the same server as ${this.#duplicateOf.name} and as ` +
          `${this.name}: it has one vote.`,
      );
    }
    const { lastError } = this.connection;
    return lastError instanceof LockConfigError ? lastError : undefined;
  }

  /** Why the server has no vote now; `undefined` if it has one. */
  get fault(): string | undefined {
    if (!this.#handshake) {
      const { lastError } = this.connection;
      const what = lastError instanceof LockConfigError ? 'used' : 'reached';
      return `cannot be ${what} (${formatReason(lastError ?? 'not connected yet')})`;
    }
    if (this.#duplicateOf) return `is the same server as ${this.#duplicateOf.name}`;
    if (this.replies.isSilent) return 'did not reply in time';
    if (this.#refusal !== undefined) return `did not reply (${formatReason(this.#refusal)})`;
    return this.hasVote ? undefined : this.vote.fault;
  }

  close(): void {
    this.#pendingReleases.close();
    this.connection.close();
    this.#isReconnecting = false;
    this.#clearHandshake();
  }

  /** Sends a call if the server is reachable, and returns whether it was sent. The server refuses a call that arrives after `untilMs`. */
  send(call: ServerCall, untilMs: number, listener: ReplyListener): boolean {
    const { client } = this.connection;
    if (!client || !this.isReachable) return false;
    const { ballotToleranceUs, channel } = this.#options;
    const sentAt = momentOf(systemClock);
    const notAfterUs = this.clock.latestUs(untilMs);
    this.replies.onSent(sentAt.monotonicMs);
    const fail = (cause: unknown): void => {
      this.replies.onFailure();
      // An error of a replaced connection says nothing about the new one.
      if (this.connection.client === client) this.#refusal = toReadableError(cause);
      if (isReplicaError(cause)) this.vote.onReadOnly();
      listener.onFailure(this);
    };
    call
      .run(client, { notAfterUs, ballotToleranceUs, channel })
      .then((callReply) => this.#onReply(callReply, sentAt, listener), fail);
    return true;
  }

  /**
   * Sends one request. Resolves with its reply, or with `undefined` if the server cannot be reached or does not reply. The
   * server refuses a request that arrives after `untilMs`, or more than `MAX_CALL_MS` after it was sent.
   */
  sendRequest(request: ServerRequest, untilMs: number): Promise<string | undefined> {
    const latestMs = Math.min(untilMs, systemClock.monotonicMs() + MAX_CALL_MS);
    return new Promise((resolve) => {
      const wasSent = this.send(new ServerCall([request]), latestMs, {
        onReply: (_, { replies }) => resolve(replies[0]),
        onFailure: () => resolve(undefined),
      });
      if (!wasSent) resolve(undefined);
    });
  }

  /**
   * Runs something else than the vote script.
   *
   * @throws Error if the server cannot be reached
   */
  async withClient<T>(run: (client: Redis) => Promise<T>): Promise<T> {
    const { client } = this.connection;
    if (!client || !this.isReachable) throw new Error('the server cannot be reached');
    return run(client);
  }

  /** Reads again what may change while a server is up: its role, and its persistence, by which a restart is judged. */
  async refreshState(): Promise<void> {
    const { runId } = this;
    const { client } = this.connection;
    if (!client || !this.isReachable) return;
    const sentAt = momentOf(systemClock);
    const state = await readServerState(client);
    if (this.connection.client === client && this.runId === runId) this.vote.onState(state, sentAt);
  }

  /** The reply to a call is overdue. */
  markOverdue(): void {
    this.replies.markOverdue();
    if (!this.connection.isOpen || !this.replies.wasIdle) return;
    this.replies.onReplaced();
    this.connection.replace();
  }

  /** Another address of the quorum leads to this same server, and has its vote; or none does (any more). */
  setDuplicateOf(original: QuorumServer | undefined): void {
    if (original === this.#duplicateOf) return;
    this.#duplicateOf = original;
    this.vote.setDuplicateOf(original?.vote);
  }

  /** Releases a lock or a vote now, or as soon as the server is reachable. */
  release(request: ServerRequest): void {
    this.#pendingReleases.add(request);
  }

  /** The same for a request over a connection that was lost: it may still arrive, so the release is sent later. */
  releaseLater(request: ServerRequest): void {
    this.#pendingReleases.add(request, MAX_CALL_MS);
  }

  #onReply(callReply: CallReply, sentAt: Moment, listener: ReplyListener): void {
    const wasSilent = this.replies.onReply();
    this.#refusal = undefined;
    this.vote.markRunning(sentAt);
    this.clock.learn(callReply.timeUs, sentAt.monotonicMs);
    listener.onReply(this, callReply);
    if (wasSilent) this.#pendingReleases.flush();
  }

  #onHandshake(handshake: Handshake): void {
    this.vote.onHandshake(handshake);
    this.#handshake = handshake;
    this.#refusal = undefined;
    this.#isReconnecting = false;
    this.replies.onConnected();
    this.clock.set(handshake.timeUs, handshake.sentAt.monotonicMs);
  }

  #onReady(): void {
    this.#options.onHandshakeChange();
    this.vote.setConnected(true);
    this.#pendingReleases.flush();
  }

  #onLost(): boolean {
    this.#isReconnecting = this.hasVote;
    this.#clearHandshake();
    return this.#isReconnecting;
  }

  #clearHandshake(): void {
    this.#handshake = undefined;
    this.vote.setConnected(false);
    this.#options.onHandshakeChange();
  }
}
