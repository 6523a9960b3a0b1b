import type { Redis } from 'ioredis';
import { type Moment, type Timer, clocksAgree, momentOf, systemClock } from '../../../../core/clock.js';
import { LockConfigError } from '../../../../core/errors.js';
import { formatReason } from '../../../../core/format.js';
import { type RedisSource, addressOf, requestConnection, toReadableError } from '../../connection.js';
import type { ScriptRunner } from '../../script-runner.js';
import { PendingReleases } from '../replication/pending-releases.js';
import type { CallReply, ServerCall, ServerRequest } from '../server-call.js';
import { Availability } from './availability.js';
import { type Handshake, isPersistent, performHandshake } from './handshake.js';
import { Quarantine } from './quarantine.js';
import { ServerClock } from './server-clock.js';

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
  /** The server has had no vote for a while, and why; or it has one again. */
  readonly onStatusChange: (server: QuorumServer, fault: string | undefined) => void;
}

/** An attempt to connect that is in progress. `settle` ends the wait for it. */
interface ConnectAttempt {
  readonly outcome: Promise<void>;
  readonly settle: () => void;
}

/** How long a slow server is not preferred for the fastest majority. */
const SLOW_MS = 1_000;
/** A connection that was idle for so long may be lost without notice. If its next reply is overdue, it is replaced. */
const IDLE_MS = 1_000;
const MIN_HANDSHAKE_PAUSE_MS = 50;
const MAX_HANDSHAKE_PAUSE_MS = 2_000;

/** One server of a quorum, with its own connection, clock estimate, quarantine and pending releases. */
export class QuorumServer {
  readonly index: number;
  /** Stands for the server in sets of servers. */
  readonly bit: number;
  /** `host:port`, for messages. */
  readonly name: string;
  readonly clock = new ServerClock();
  readonly #options: QuorumServerOptions;
  readonly #pendingReleases: PendingReleases;
  readonly #quarantine: Quarantine;
  readonly #availability: Availability;
  #client: Redis | undefined;
  #connectAttempt: ConnectAttempt | undefined;
  #handshake: Handshake | undefined;
  #duplicateOf: QuorumServer | undefined;
  /** Before this time the same server may also have voted under another address. */
  #uniqueFromMs = -Infinity;
  #mayVoteFromMs = Infinity;
  /** Until when the server list is confirmed: no server that replies counts another server in its place. */
  #confirmedUntilMs = -Infinity;
  #confirmedAt: Moment | undefined;
  #confirmedRunId: string | undefined;
  #unconfirmedReason = 'not confirmed yet';
  #failedHandshakes = 0;
  #handshakeTimer: Timer | undefined;
  #unanswered = 0;
  #isSilent = false;
  #isReconnecting = false;
  /** When the oldest unanswered call was sent, and when the newest reply came. */
  #unansweredFromMs = 0;
  #lastReplyAtMs = 0;
  #slowUntilMs = 0;
  /** Why the server cannot be reached, and the last error that it returned. */
  #lastError: unknown;
  #refusal: unknown;

  constructor(options: QuorumServerOptions) {
    this.#options = options;
    this.index = options.index;
    this.bit = 2 ** options.index;
    this.name = addressOf(options.source);
    this.#quarantine = new Quarantine(options.quarantineMs);
    this.#pendingReleases = new PendingReleases(this, options.maxLeaseMs);
    this.#availability = new Availability(
      () => this.#client && this.fault,
      (fault) => options.onStatusChange(this, fault),
    );
  }

  get runId(): string | undefined {
    return this.#handshake?.runId;
  }

  /** The same, followed by the earlier runs whose data this run kept. */
  get runs(): readonly string[] {
    return this.#quarantine.runs;
  }

  /** Whether the server's replies count now. */
  get hasVote(): boolean {
    return this.hasVoteSince(systemClock.monotonicMs());
  }

  /** Whether the server's reply to a request that was sent at `ms` counts. */
  hasVoteSince(ms: number): boolean {
    const wasConfirmed = this.#mayVoteFromMs <= ms && ms < this.#confirmedUntilMs;
    return (
      wasConfirmed && this.#confirmedAt !== undefined && clocksAgree(this.#confirmedAt, momentOf(systemClock))
    );
  }

  /** All servers that replied list this one. Valid until `untilMs`, unless this machine sleeps in between. */
  confirmVote(untilMs: number, at: Moment): void {
    this.#confirmedAt = at;
    this.#confirmedUntilMs = untilMs;
    this.#confirmedRunId = this.runId;
    this.#availability.check();
  }

  /** Takes the vote away at once. */
  revokeVote(reason: string): void {
    this.#confirmedUntilMs = -Infinity;
    this.setUnconfirmed(reason);
  }

  /** The reason to report once the present confirmation has ended. */
  setUnconfirmed(reason: string): void {
    this.#unconfirmedReason = reason;
    this.#availability.check();
  }

  mayVote(nowMs: number): boolean {
    return this.isReachable && this.hasVoteSince(nowMs);
  }

  /** Whether the server was not slow recently. */
  isQuick(nowMs: number): boolean {
    return this.#slowUntilMs <= nowMs;
  }

  /** Whether a call may be sent. After an overdue reply nothing more is sent, so that calls do not pile up. */
  get isReachable(): boolean {
    return this.#handshake !== undefined && !this.isSilent;
  }

  get isSilent(): boolean {
    return this.#isSilent && this.#unanswered > 0;
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
    return this.#lastError instanceof LockConfigError ? this.#lastError : undefined;
  }

  /** Why the server has no vote now; `undefined` if it has one. */
  get fault(): string | undefined {
    if (!this.#handshake) {
      const what = this.#lastError instanceof LockConfigError ? 'used' : 'reached';
      return `cannot be ${what} (${formatReason(this.#lastError ?? 'not connected yet')})`;
    }
    if (this.#duplicateOf) return `is the same server as ${this.#duplicateOf.name}`;
    if (this.isSilent) return 'did not reply in time';
    if (this.#refusal !== undefined) return `did not reply (${formatReason(this.#refusal)})`;
    if (this.hasVote) return undefined;
    const nowMs = systemClock.monotonicMs();
    if (this.#mayVoteFromMs <= nowMs) return `has no vote, ${this.#unconfirmedReason}`;
    const seconds = Math.ceil((this.#mayVoteFromMs - nowMs) / 1_000);
    const reason = this.#quarantine.isDifferentRun
      ? 'restarted and may have forgotten its locks, or is another server than before'
      : 'may have forgotten its locks when it restarted';
    return (
      `${reason}, so it has no vote for another ${seconds} s. Changing its settings now does not shorten this (for processes ` +
      `that were connected, a server keeps its vote if it had appendonly yes and appendfsync always before it restarted)`
    );
  }

  /**
   * Connects if there is no connection. Returns a promise while the first attempt to connect is in progress, or the first
   * one after the connection was lost; it resolves when that attempt has ended.
   */
  open(): Promise<void> | undefined {
    if (!this.#client) this.#connect();
    return this.#connectAttempt?.outcome;
  }

  /** Ends the wait for the present attempt to connect. */
  settleConnectAttempt(): void {
    this.#connectAttempt?.settle();
    this.#connectAttempt = undefined;
  }

  close(): void {
    this.#pendingReleases.close();
    this.#client?.disconnect();
    this.#client = undefined;
    this.#isReconnecting = false;
    this.#clearHandshake();
    this.settleConnectAttempt();
    this.#availability.close();
  }

  /** Sends a call if the server is reachable, and returns whether it was sent. The server refuses a call that arrives after `untilMs`. */
  send(call: ServerCall, untilMs: number, listener: ReplyListener): boolean {
    const client = this.#client;
    if (!client || !this.isReachable) return false;
    const { ballotToleranceUs, channel } = this.#options;
    const sentAt = momentOf(systemClock);
    const sentAtMs = sentAt.monotonicMs;
    const notAfterUs = this.clock.latestUs(untilMs);
    if (this.#unanswered === 0) this.#unansweredFromMs = sentAtMs;
    this.#unanswered += 1;
    const fail = (cause: unknown): void => {
      this.#unanswered -= 1;
      // An error of a replaced connection says nothing about the new one.
      if (this.#client === client) this.#refusal = toReadableError(cause);
      this.#availability.check();
      listener.onFailure(this);
    };
    call
      .run(client, { notAfterUs, ballotToleranceUs, channel })
      .then((callReply) => this.#onReply(callReply, sentAt, listener), fail);
    return true;
  }

  /**
   * Runs something else than the vote script.
   *
   * @throws Error if the server cannot be reached
   */
  withClient<T>(run: (runner: ScriptRunner) => Promise<T>): Promise<T> {
    if (!this.#client || !this.isReachable) return Promise.reject(new Error('the server cannot be reached'));
    return run(this.#client);
  }

  /** Reads the persistence settings again, which may change while a server is up. A restart is judged by the last reading. */
  async refreshPersistence(): Promise<void> {
    const { runId } = this;
    const client = this.#client;
    if (!client || !this.isReachable) return;
    const sentAt = momentOf(systemClock);
    const persists = await isPersistent(client).catch(falseIfRefused);
    if (persists === undefined || this.#client !== client || this.runId !== runId) return;
    this.#quarantine.markRunning(sentAt);
    this.#quarantine.setPersistent(persists);
  }

  /** Other servers replied while this one did not. */
  markSlow(): void {
    this.#slowUntilMs = systemClock.monotonicMs() + SLOW_MS;
  }

  /** The reply to a call is overdue. */
  markOverdue(): void {
    this.#isSilent = true;
    if (this.#client && this.#unansweredFromMs - this.#lastReplyAtMs > IDLE_MS) this.#reconnect(this.#client);
    this.#availability.check();
  }

  /** Another address of the quorum leads to this same server, and has its vote; or none does (any more). */
  setDuplicateOf(original: QuorumServer | undefined): void {
    if (original === this.#duplicateOf) return;
    const hadVote = this.hasVote;
    this.#duplicateOf = original;
    // The address that takes over the vote has it only for requests from now on.
    const voteOwner = original ?? this;
    if (!original || hadVote) voteOwner.#uniqueFromMs = systemClock.monotonicMs();
    voteOwner.#updateMayVoteFrom();
    this.#updateMayVoteFrom();
    this.#availability.check();
  }

  /** Releases a lock or a vote now, or as soon as the server is reachable. */
  release(request: ServerRequest): void {
    this.#pendingReleases.add(request);
  }

  /** The same for a request over a connection that was lost: it may still arrive, so the release is sent later. */
  releaseLater(request: ServerRequest): void {
    this.#pendingReleases.addDelayed(request);
  }

  #onReply(callReply: CallReply, sentAt: Moment, listener: ReplyListener): void {
    this.#unanswered -= 1;
    this.#refusal = undefined;
    this.#lastReplyAtMs = systemClock.monotonicMs();
    this.#quarantine.markRunning(sentAt);
    if (callReply.timeUs > 0) this.clock.learn(callReply.timeUs, sentAt.monotonicMs);
    const wasSilent = this.#isSilent;
    this.#isSilent = false;
    listener.onReply(this, callReply);
    if (wasSilent) this.#pendingReleases.flush();
  }

  #reconnect(silent: Redis): void {
    this.#lastReplyAtMs = systemClock.monotonicMs();
    this.#isReconnecting = this.hasVote;
    this.#client = undefined;
    silent.disconnect();
    this.#lastError = new Error('its connection fell silent');
    this.#clearHandshake();
    this.#connect();
  }

  #connect(): void {
    this.#connectAttempt = createConnectAttempt();
    // Never a Cluster: `resolveRedlockOptions` has checked that.
    const client = requestConnection(this.#options.source) as Redis;
    this.#client = client;
    client.on('error', (error: Error) => {
      if (this.#client === client) this.#lastError = toReadableError(error);
    });
    client.on('ready', () => void this.#performHandshake(client));
    client.on('close', () => {
      if (this.#client !== client) return;
      this.#isReconnecting = this.hasVote;
      this.#clearHandshake();
      this.settleConnectAttempt();
      if (this.#isReconnecting) this.#connectAttempt = createConnectAttempt();
      this.#availability.check();
    });
    client.connect().catch(() => undefined); // The events report the outcome too.
  }

  async #performHandshake(client: Redis): Promise<void> {
    try {
      const handshake = await performHandshake(client);
      if (this.#client !== client || client.status !== 'ready') return;
      this.#onHandshake(handshake);
    } catch (cause) {
      if (this.#client !== client || client.status !== 'ready') return;
      this.#lastError = isForbidden(cause) ? forbiddenError(cause) : toReadableError(cause);
      this.settleConnectAttempt();
      this.#availability.check();
      this.#retryHandshake(client, isForbidden(cause));
    }
  }

  /** A forbidden command may be allowed later on the same connection. After other failures, a new one may lead elsewhere. */
  #retryHandshake(client: Redis, isSameConnection: boolean): void {
    const pauseMs = MIN_HANDSHAKE_PAUSE_MS * 2 ** this.#failedHandshakes;
    this.#failedHandshakes += 1;
    this.#handshakeTimer = systemClock.after(Math.min(pauseMs, MAX_HANDSHAKE_PAUSE_MS), () => {
      this.#handshakeTimer = undefined;
      if (isSameConnection) void this.#performHandshake(client);
      else client.disconnect(true);
    });
  }

  #onHandshake(handshake: Handshake): void {
    this.#quarantine.onHandshake(handshake, momentOf(systemClock));
    if (handshake.isReplica) throw new Error('it is a replica of another server');
    const { runs } = this.#quarantine;
    // Another server, or one that lost its data: the earlier confirmation does not hold for it.
    if (!runs.some((run) => run === this.#confirmedRunId)) this.revokeVote('not confirmed yet');
    this.#handshake = handshake;
    this.#failedHandshakes = 0;
    this.#lastError = undefined;
    this.#refusal = undefined;
    this.#isSilent = false;
    this.#isReconnecting = false;
    this.#lastReplyAtMs = systemClock.monotonicMs();
    this.clock.set(handshake.timeUs, handshake.sentAt.monotonicMs);
    this.#options.onHandshakeChange();
    this.#updateMayVoteFrom();
    this.settleConnectAttempt();
    this.#availability.check();
    this.#pendingReleases.flush();
  }

  #updateMayVoteFrom(): void {
    const isEligible = this.#handshake && !this.#duplicateOf;
    this.#mayVoteFromMs = isEligible ? Math.max(this.#quarantine.endsAtMs, this.#uniqueFromMs) : Infinity;
  }

  #clearHandshake(): void {
    this.#handshakeTimer?.cancel();
    this.#handshakeTimer = undefined;
    this.#handshake = undefined;
    this.#updateMayVoteFrom();
    this.#options.onHandshakeChange();
  }
}

function createConnectAttempt(): ConnectAttempt {
  let settle = (): void => undefined;
  const outcome = new Promise<void>((resolve) => (settle = resolve));
  return { outcome, settle };
}

/** A lost connection says nothing about the settings. */
const falseIfRefused = (cause: unknown) =>
  cause instanceof Error && cause.name === 'ReplyError' ? false : undefined;

const isForbidden = (cause: unknown) => /^NOPERM|unknown command/i.test(formatReason(cause));

const forbiddenError = (cause: unknown) =>
  new LockConfigError(
    `redlockBackend() needs the commands INFO and TIME, which this server refuses (${formatReason(cause)}). Allow them with ` +
      `the ACL rules +info and +time.`,
    { cause },
  );
