import type { Redis } from 'ioredis';
import { type Moment, type Timer, clocksAgree, momentOf, systemClock } from '../../../../core/clock.js';
import { LockConfigError } from '../../../../core/errors.js';
import { formatReason } from '../../../../core/format.js';
import { type RedisSource, addressOf, toReadableError, requestConnection } from '../../connection.js';
import type { ScriptRunner } from '../../single/commands.js';
import { Availability } from './availability.js';
import { PendingReleases } from '../replication/pending-releases.js';
import { type Handshake, performHandshake, isPersistent } from './handshake.js';
import type { ServerCall, ServerRequest, CallReply } from '../server-call.js';
import { ServerClock } from './server-clock.js';
import { Quarantine } from './quarantine.js';

/** Who asked a server. Hears exactly once. */
export interface ReplyListener {
  onReply(server: QuorumServer, callReply: CallReply): void;
  /** No answer will come; the requests may have taken effect, or may yet do so. */
  onFailure(server: QuorumServer): void;
}

interface QuorumServerOptions {
  readonly index: number;
  readonly source: RedisSource;
  /** The longest lease. What is owed for longer has lapsed. */
  readonly maxLeaseMs: number;
  /** How long a server that may have forgotten has no vote. */
  readonly quarantineMs: number;
  readonly ballotToleranceUs: number;
  readonly channel: string;
  /** It came, or it went. */
  readonly onHandshakeChange: () => void;
  /** It has had no vote for a while, and why; or it has one again. */
  readonly onStatusChange: (server: QuorumServer, fault: string | undefined) => void;
}

/** An attempt to connect that is under way. */
interface ConnectAttempt {
  readonly outcome: Promise<void>;
  readonly settle: () => void;
}

/** Who was slow is not among the first to be asked for so long. */
const SLOW_MS = 1_000;
/** A connection that was idle for so long may have silently gone: if it then owes an answer, a new one is made. */
const IDLE_MS = 1_000;
const MIN_HANDSHAKE_PAUSE_MS = 50;
const MAX_HANDSHAKE_PAUSE_MS = 2_000;

/** One server of a quorum, over a connection of our own. */
export class QuorumServer {
  readonly index: number;
  readonly bit: number;
  /** What people call it: `host:port`. */
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
  /** What it was asked before that it may have answered under another name as well. */
  #uniqueFromMs = -Infinity;
  #mayVoteFromMs = Infinity;
  /** Until then no other server counts in its place; and why it does not count. */
  #confirmedUntilMs = -Infinity;
  #confirmedAt: Moment | undefined;
  #confirmedRunId: string | undefined;
  #unconfirmedReason = 'not confirmed yet';
  #failedHandshakes = 0;
  #handshakeTimer: Timer | undefined;
  #unanswered = 0;
  #isSilent = false;
  #isReconnecting = false;
  /** Since when it owes an answer, and when the newest one came. */
  #unansweredFromMs = 0;
  #lastReplyAtMs = 0;
  #slowUntilMs = 0;
  /** Why it cannot be reached, and what it said last instead of an answer. */
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

  /** The same, and before it the runs which this one goes on. */
  get runs(): readonly string[] {
    return this.#quarantine.runs;
  }

  /** Whether what it says counts. */
  get hasVote(): boolean {
    return this.hasVoteSince(systemClock.monotonicMs());
  }

  /** The same for what it was asked then. */
  hasVoteSince(ms: number): boolean {
    const wasConfirmed = this.#mayVoteFromMs <= ms && ms < this.#confirmedUntilMs;
    return (
      wasConfirmed && this.#confirmedAt !== undefined && clocksAgree(this.#confirmedAt, momentOf(systemClock))
    );
  }

  /** By all servers that answer it is one of those that count; as long as no machine has slept since they were asked. */
  confirmVote(untilMs: number, at: Moment): void {
    this.#confirmedAt = at;
    this.#confirmedUntilMs = untilMs;
    this.#confirmedRunId = this.runId;
    this.#availability.check();
  }

  /** It has no vote, and why. */
  revokeVote(reason: string): void {
    this.#confirmedUntilMs = -Infinity;
    this.setUnconfirmed(reason);
  }

  /** Why it will have no vote when the last confirmation is over. */
  setUnconfirmed(reason: string): void {
    this.#unconfirmedReason = reason;
    this.#availability.check();
  }

  mayVote(nowMs: number): boolean {
    return this.isReachable && this.hasVoteSince(nowMs);
  }

  /** Whether it was not slow of late. */
  isQuick(nowMs: number): boolean {
    return this.#slowUntilMs <= nowMs;
  }

  /** A server that owes an answer for too long is asked nothing more, so that no queue grows before it. */
  get isReachable(): boolean {
    return this.#handshake !== undefined && !this.isSilent;
  }

  get isSilent(): boolean {
    return this.#isSilent && this.#unanswered > 0;
  }

  /** It had a vote, was silent or lost its connection, and is asked whether it answers over another one. */
  get isReconnecting(): boolean {
    return this.#isReconnecting;
  }

  /** What only a person can mend. */
  get configError(): LockConfigError | undefined {
    if (this.#duplicateOf) {
      return new LockConfigError(
        `Expected independent Redis servers in redlockBackend(), got the same one as ${this.#duplicateOf.name} and as ` +
          `${this.name}: it has one vote.`,
      );
    }
    return this.#lastError instanceof LockConfigError ? this.#lastError : undefined;
  }

  /** Why it has no vote now. */
  get fault(): string | undefined {
    if (!this.#handshake) {
      const what = this.#lastError instanceof LockConfigError ? 'used' : 'reached';
      return `cannot be ${what} (${formatReason(this.#lastError ?? 'not connected yet')})`;
    }
    if (this.#duplicateOf) return `is ${this.#duplicateOf.name} once more`;
    if (this.isSilent) return 'did not answer in time';
    if (this.#refusal !== undefined) return `did not answer (${formatReason(this.#refusal)})`;
    if (this.hasVote) return undefined;
    const nowMs = systemClock.monotonicMs();
    if (this.#mayVoteFromMs <= nowMs) return `has no vote, ${this.#unconfirmedReason}`;
    const seconds = Math.ceil((this.#mayVoteFromMs - nowMs) / 1_000);
    const reason = this.#quarantine.isDifferentRun
      ? 'restarted and may have forgotten its locks, or is another server than before'
      : 'may have forgotten its locks when it restarted';
    return (
      `${reason}, so it has no vote for another ${seconds} s. Settings changed now do not shorten this (processes that were ` +
      `connected count a server at once if it had appendonly yes and appendfsync always before it restarted)`
    );
  }

  /**
   * Sees to it that it can be asked. While the first attempt to connect is under way, or the first one after it was lost,
   * answers when that ends.
   */
  open(): Promise<void> | undefined {
    if (!this.#client) this.#connect();
    return this.#connectAttempt?.outcome;
  }

  /** Nobody waits for that attempt any longer. */
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

  /** Asks, if that makes sense now; says whether it did. `untilMs`: a call that arrives later is refused. */
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
      // Of a connection that was given up it says nothing about the new one.
      if (this.#client === client) this.#refusal = toReadableError(cause);
      this.#availability.check();
      listener.onFailure(this);
    };
    call
      .run(client, { notAfterUs, ballotToleranceUs, channel })
      .then((callReply) => this.#onReply(callReply, sentAt, listener), fail);
    return true;
  }

  /** Asks something else than the script. */
  withClient<T>(run: (runner: ScriptRunner) => Promise<T>): Promise<T> {
    if (!this.#client || !this.isReachable) return Promise.reject(new Error('the server cannot be asked'));
    return run(this.#client);
  }

  /** Its settings may change while it is on: what counts over a restart is what it last said before. */
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

  /** Others answered while it did not. */
  markSlow(): void {
    this.#slowUntilMs = systemClock.monotonicMs() + SLOW_MS;
  }

  /** The answer to a call came too late, or has not come. */
  markOverdue(): void {
    this.#isSilent = true;
    if (this.#client && this.#unansweredFromMs - this.#lastReplyAtMs > IDLE_MS) this.#reconnect(this.#client);
    this.#availability.check();
  }

  /** Another one of the quorum is this very server, and has its vote; or there is none (any more). */
  setDuplicateOf(original: QuorumServer | undefined): void {
    if (original === this.#duplicateOf) return;
    const hadVote = this.hasVote;
    this.#duplicateOf = original;
    // Whoever takes over the vote of that server has it for what is asked from now on.
    const voteOwner = original ?? this;
    if (!original || hadVote) voteOwner.#uniqueFromMs = systemClock.monotonicMs();
    voteOwner.#updateMayVoteFrom();
    this.#updateMayVoteFrom();
    this.#availability.check();
  }

  /** Gives it back now, or as soon as the server can be asked. */
  release(request: ServerRequest): void {
    this.#pendingReleases.add(request);
  }

  /** The same for what was to go over a connection that was lost. */
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
    // No Cluster: the options were checked.
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
    client.connect().catch(() => undefined); // Its outcome comes as an event too.
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

  /** What is forbidden may be allowed to the same connection later; for the rest, another one may lead elsewhere. */
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
    // Another server, or one that forgot: what was confirmed before says nothing of it.
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

/** A lost connection says nothing about settings. */
const falseIfRefused = (cause: unknown) =>
  cause instanceof Error && cause.name === 'ReplyError' ? false : undefined;

const isForbidden = (cause: unknown) => /^NOPERM|unknown command/i.test(formatReason(cause));

const forbiddenError = (cause: unknown) =>
  new LockConfigError(
    `a server of redlockBackend() must tell who it is and what time it has, but refuses (${formatReason(cause)}). Allow it ` +
      `with the ACL rules +info and +time.`,
    { cause },
  );
