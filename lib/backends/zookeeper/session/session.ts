import { type Timer, momentOf, systemClock } from '../../../core/clock.js';
import { nextTick } from '../../../core/real-timers.js';
import { SharedCall } from '../../../core/requests/shared-call.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { StoreTimeoutError, replyWithin } from '../../../core/requests/store-timeout.js';
import type { SessionReply } from '../wire/connection-types.js';
import { HostConnection } from '../wire/host-connection.js';
import { type Operation, check, multi } from '../wire/operations.js';
import {
  CODE,
  SessionOverError,
  ZookeeperError,
  closedError,
  codeOf,
  noSessionError,
  notConnectedError,
  shortSessionError,
  unconfirmedError,
} from '../wire/zookeeper-errors.js';
import { awaitReplies, pause } from './await-replies.js';
import { SessionLease } from './session-lease.js';
import type { SessionParts } from './session-parts.js';

/** A server that does not open a session within this time is left, if there is another one. */
const MAX_HANDSHAKE_MS = 2_000;
const RECONNECT_MS = 100;
const CONFIRM_PAUSE = 1 / 8;

const NO_SESSION: SessionReply = { id: 0n, password: Buffer.alloc(0), timeoutMs: 0 };

/** One session of this process in ZooKeeper, which all its locks belong to, over one connection at a time. */
export class Session {
  readonly #parts: SessionParts;
  readonly #lease: SessionLease;
  readonly #connecting = new SharedCall((timeoutMs) => this.#connect(timeoutMs));
  #connection: HostConnection | undefined;
  #identity = NO_SESSION;
  #lastZxid = 0n;
  #isPrepared = false;
  #isOver = false;
  #isClosed = false;
  #timer: Timer | undefined;
  #heartbeatOfTurn: Promise<void> | undefined;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#lease = new SessionLease(parts.tickTimeMs);
  }

  /** All its locks are gone. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Nothing more is sent. */
  get isEnded(): boolean {
    return this.#isOver || this.#isClosed;
  }

  /** Without a connection for so long, it counts as over. */
  get maxLostMs(): number {
    return this.#lease.maxLostMs;
  }

  get id(): bigint {
    return this.#identity.id;
  }

  /** Whether ZooKeeper certainly keeps the session for so long. Not if it is closed, which may have ended it there. */
  lasts(ms: number): boolean {
    return !this.isEnded && this.#lease.lasts(ms);
  }

  /**
   * Resolves when there is a connection.
   *
   * @throws SessionOverError if the session has ended
   */
  async ready(timeoutMs: number): Promise<void> {
    if (this.#isOver) throw new SessionOverError();
    if (this.#isClosed) throw closedError();
    if (!this.#connection || !this.#isPrepared) await this.#connecting.run(timeoutMs);
  }

  /** Sends now, or rejects. Settles only when the reply has arrived or the connection is lost: callers limit how long they wait. */
  send<Reply>(operation: Operation<Reply>): Promise<Reply> {
    const reply = this.#connection
      ? this.#connection.send(operation)
      : Promise.reject<Reply>(
          this.#isOver ? new SessionOverError() : notConnectedError(this.#parts.hosts.currentName),
        );
    // A caller may have stopped waiting for it.
    reply.catch((error: unknown) => {
      if (error instanceof SessionOverError) this.#end();
    });
    return reply;
  }

  /** Waits for replies that were sent now. A server that has been silent since then is left. */
  await<T>(replies: Promise<T>, deadline: Deadline): Promise<T> {
    return awaitReplies(replies, deadline, this.#connection);
  }

  /**
   * A write that changes nothing. A majority has to agree to it, so it shows that the session lasts, and reads that follow it see
   * all that was written before. Those of one turn of the event loop share it.
   */
  heartbeat(): Promise<void> {
    if (!this.#heartbeatOfTurn) {
      this.#heartbeatOfTurn = this.send(multi([check(this.#parts.root)]));
      this.#heartbeatOfTurn.catch((error: unknown) => {
        // Somebody has deleted everything.
        if (codeOf(error) === CODE.noNode) this.#isPrepared = false;
      });
      nextTick(() => (this.#heartbeatOfTurn = undefined));
    }
    return this.#heartbeatOfTurn;
  }

  /**
   * Resolves when ZooKeeper is known to keep the session for so long.
   *
   * @throws ZookeeperError if the session is closed meanwhile
   */
  async confirm(ms: number, timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    while (!this.lasts(ms)) {
      if (this.#isClosed) throw unconfirmedError();
      await this.ready(deadline.leftMs);
      await this.await(this.heartbeat(), deadline);
      // After a sleep, a message must be a tick old before it counts.
      if (!this.lasts(ms)) await pause(Math.min(this.#parts.tickTimeMs * CONFIRM_PAUSE, deadline.leftMs));
    }
  }

  /** Ends the connection. With `endsLocks`, it ends the session in ZooKeeper before, with all its nodes. */
  async close(endsLocks: boolean): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#timer?.cancel();
    const connection = this.#connection;
    if (!connection) return;
    if (endsLocks && !this.#isOver) await connection.endSession();
    connection.close();
  }

  async #connect(timeoutMs: number): Promise<void> {
    if (!this.#connection && this.#lease.isLost) this.#end();
    if (this.#isOver) throw new SessionOverError();
    const { hosts } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    for (let triesLeft = hosts.count; !this.#connection; triesLeft -= 1) {
      try {
        await this.#connectTo(deadline);
      } catch (error) {
        if (error instanceof SessionOverError) throw error;
        const mayRetry = error instanceof ZookeeperError || error instanceof StoreTimeoutError;
        if (!mayRetry || triesLeft <= 1 || this.#isClosed) throw error;
      }
    }
    if (!this.#isPrepared) await this.#parts.prepare(deadline);
    else this.#parts.onContinued();
    this.#isPrepared = true;
  }

  async #connectTo(deadline: Deadline): Promise<void> {
    const { hosts, settings, sessionTimeoutMs } = this.#parts;
    const connection = new HostConnection(hosts.current, settings);
    const limitMs = hosts.count > 1 ? Math.min(deadline.leftMs, MAX_HANDSHAKE_MS) : deadline.leftMs;
    const sentAt = momentOf(systemClock);
    try {
      const request = { ...this.#identity, timeoutMs: sessionTimeoutMs, lastZxid: this.#lastZxid };
      const reply = await replyWithin(systemClock, limitMs, () => connection.open(request, settings));
      this.#adopt(reply);
      this.#lease.onConnected(sentAt, reply.timeoutMs);
      if (this.#isClosed) throw closedError();
      this.#attach(connection);
    } catch (error) {
      if (this.#connection !== connection) hosts.leave();
      connection.close();
      throw error;
    }
  }

  #adopt(reply: SessionReply): void {
    const { sessionTimeoutMs } = this.#parts;
    if (reply.timeoutMs <= 0) {
      if (this.id === 0n) throw noSessionError(this.#parts.hosts.currentName);
      this.#end();
      throw new SessionOverError();
    }
    this.#identity = reply;
    // The next try continues this session, so that tries leave no sessions behind.
    if (reply.timeoutMs < sessionTimeoutMs) throw shortSessionError(sessionTimeoutMs, reply.timeoutMs);
  }

  #attach(connection: HostConnection): void {
    const { onNotice } = this.#parts;
    connection.listen({
      onReply: (sentAt, isCommitted) => {
        if (this.#connection === connection) this.#lease.onReply(sentAt, isCommitted);
      },
      onNotice,
      onClosed: () => this.#detach(connection),
    });
    this.#connection = connection;
    this.#beatAfter(this.#lease.beatMs);
  }

  #detach(connection: HostConnection): void {
    if (this.#connection !== connection) return;
    this.#lastZxid = connection.lastZxid;
    this.#lease.onLost();
    this.#connection = undefined;
    if (this.#isClosed) return;
    this.#parts.hosts.leave();
    this.#parts.onLost();
    this.#beatAfter(RECONNECT_MS);
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timer?.cancel();
    this.#connection?.close();
    this.#parts.onLost();
  }

  #beatAfter(delayMs: number): void {
    this.#timer?.cancel();
    if (this.#isOver || this.#isClosed) return;
    this.#timer = systemClock.after(delayMs, () => void this.#beat());
  }

  /** Keeps the session alive, and leaves a server that does not answer. */
  async #beat(): Promise<void> {
    const isInUse = this.#parts.isInUse();
    this.#beatAfter(Math.max(this.#lease.beatMs, RECONNECT_MS));
    if (!this.#connection) {
      // A failure is no news: a request that needs the session tries again.
      if (isInUse) await this.#connecting.run(this.#lease.timeoutMs / 4).catch(() => undefined);
      return;
    }
    if (isInUse) this.heartbeat().catch(() => undefined);
    const deadline = deadlineIn(this.#lease.maxSilenceMs);
    await this.await(this.#connection.ping(), deadline).catch(() => undefined);
  }
}
