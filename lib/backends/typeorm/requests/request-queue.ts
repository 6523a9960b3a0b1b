import { type BatchResult, type RequestBatch, neverSentResult } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { queueMicrotask } from '../../../core/real-time.js';
import { ConnectionPool } from '../connections/connection-pool.js';
import type { Connection } from '../connections/connection.js';
import type { Session } from '../dialects/dialect.js';
import { KeysInFlight } from './keys-in-flight.js';
import { PendingBatch, type PendingRequest, REQUEST_KINDS } from './pending-batch.js';
import { Timeout } from './timeout.js';

/** A statement for more requests would occupy its connection, and keep its rows locked, for too long. */
const MAX_REQUESTS_AT_ONCE = 1_000;

interface RequestQueueParts {
  readonly maxConnections: number;
  connect(): Promise<Connection>;
  /**
   * Sends the pending requests and settles each with its result. Calls `onStatementEnd` for each request whose statement has
   * ended, even if its batch has timed out before. Must never reject.
   */
  execute(
    pendingRequests: readonly PendingRequest[],
    session: Session,
    onStatementEnd: (pending: PendingRequest) => void,
  ): Promise<void>;
}

/** A caller of {@link RequestQueue.withSession} that waits for a connection. */
interface SessionRequest {
  readonly timeout: Timeout;
  start(session: Session): Promise<void>;
  reject(cause: unknown): void;
}

/**
 * Keeps requests until a connection is free. The first request is sent at once. Requests that arrive while all connections
 * are busy are collected and sent together. Requests for one key take effect in the order in which they were made.
 */
export class RequestQueue {
  readonly #parts: RequestQueueParts;
  readonly #pool: ConnectionPool;
  readonly #connectionUses = new Set<Promise<void>>();
  readonly #keysInFlight = new KeysInFlight();
  readonly #sessions = new Set<Promise<unknown>>();
  #sessionRequests: SessionRequest[] = [];
  #pendingRequests: PendingRequest[] = [];
  #wasSessionLast = false;
  #willSend = false;

  constructor(parts: RequestQueueParts) {
    this.#parts = parts;
    this.#pool = new ConnectionPool({
      maxSize: parts.maxConnections,
      connect: () => parts.connect(),
      onChange: () => this.#send(),
      onUnavailable: (cause) => this.#rejectAll(cause),
    });
  }

  execute(requestBatch: RequestBatch, timeoutMs: number): Promise<BatchResult> {
    const batch = new PendingBatch(requestBatch, timeoutMs);
    for (const pending of batch.pendingRequests) this.#pendingRequests.push(pending);
    this.#send();
    return batch.result;
  }

  /** Does the work over a connection that nothing else uses meanwhile. Rejects when the timeout ends. */
  async withSession<T>(timeoutMs: number, work: (session: Session) => Promise<T>): Promise<T> {
    using timeout = new Timeout(timeoutMs);
    const done = new Promise<T>((resolve, reject) => {
      const start = async (session: Session) => {
        timeout.throwIfOver();
        resolve(await work(session));
      };
      this.#sessionRequests.push({ timeout, reject, start: (session) => start(session).catch(reject) });
    });
    const result = timeout.within(done);
    this.#sessions.add(result);
    this.#send();
    try {
      return await result;
    } finally {
      this.#sessions.delete(result);
    }
  }

  /**
   * Opens no more connections. Waiting requests are sent over open connections, or rejected if there are none. Resolves when
   * every request has a result, which their timeouts limit.
   */
  async close(): Promise<void> {
    this.#pool.close();
    await Promise.allSettled([...this.#pendingRequests.map(({ batch }) => batch.result), ...this.#sessions]);
    await Promise.allSettled(this.#connectionUses);
  }

  #send(): void {
    while (this.#hasWork) {
      const connection = this.#pool.take();
      if (!connection) {
        this.#openConnection();
        return;
      }
      if (!this.#sendNext(connection)) {
        // Every pending request waits for the unfinished statement of its key.
        this.#pool.putBack(connection);
        return;
      }
    }
  }

  /** Sends once for all keys of a statement, not once for each. */
  #sendSoon(): void {
    if (this.#willSend) return;
    this.#willSend = true;
    queueMicrotask(() => {
      this.#willSend = false;
      this.#send();
    });
  }

  get #hasWork(): boolean {
    return this.#sessionRequests.length > 0 || this.#pendingRequests.length > 0;
  }

  #openConnection(): void {
    if (!this.#pool.mayOpen) return;
    this.#dropExpired();
    if (this.#hasWork) void this.#pool.open();
  }

  /** Alternates between sessions and requests, so that neither can starve the other. */
  #sendNext(connection: Connection): boolean {
    if (this.#wasSessionLast) return this.#sendRequests(connection) || this.#startSession(connection);
    return this.#startSession(connection) || this.#sendRequests(connection);
  }

  #startSession(connection: Connection): boolean {
    const sessionRequest = this.#sessionRequests.shift();
    if (!sessionRequest) return false;
    this.#wasSessionLast = true;
    this.#useConnection(connection, sessionRequest.timeout, (session) => sessionRequest.start(session));
    return true;
  }

  #sendRequests(connection: Connection): boolean {
    const pendingRequests = this.#takeSendable();
    if (pendingRequests.length === 0) return false;
    this.#wasSessionLast = false;
    const endsAtMs = pendingRequests.reduce((latest, { batch }) => Math.max(latest, batch.endsAtMs), 0);
    const timeout = new Timeout(endsAtMs - systemClock.monotonicMs());
    for (const pending of pendingRequests) this.#keysInFlight.add(pending);
    this.#useConnection(connection, timeout, async (session) => {
      await this.#parts.execute(pendingRequests, session, (pending) => this.#onStatementEnd(pending));
      timeout[Symbol.dispose]();
      for (const pending of pendingRequests) this.#keysInFlight.remove(pending);
    });
    return true;
  }

  #onStatementEnd(pending: PendingRequest): void {
    if (this.#keysInFlight.remove(pending)) this.#sendSoon();
  }

  #useConnection(connection: Connection, timeout: Timeout, work: (session: Session) => Promise<void>): void {
    const use = work(connection.openSession(timeout)).then(() => {
      this.#connectionUses.delete(use);
      this.#pool.putBack(connection);
      this.#send();
    });
    this.#connectionUses.add(use);
  }

  /**
   * Removes from the queue and returns the requests that may be sent together: without expired ones, and without those that
   * must wait for an earlier request of their key.
   */
  #takeSendable(): readonly PendingRequest[] {
    const nowMs = systemClock.monotonicMs();
    const sendable: PendingRequest[] = [];
    const remaining: PendingRequest[] = [];
    const ranks = new Map<string, number>();
    for (const pending of this.#pendingRequests) {
      const { batch, request, kind } = pending;
      // After a blocked event loop this may run before the batch's own timer.
      if (nowMs >= batch.endsAtMs) batch.timeOut();
      if (batch.isSettled) continue;
      const rank = REQUEST_KINDS.indexOf(kind);
      const isNext = rank > (ranks.get(request.key) ?? -1) && !this.#keysInFlight.has(request.key);
      const isSendable = isNext && sendable.length < MAX_REQUESTS_AT_ONCE;
      ranks.set(request.key, isSendable ? rank : REQUEST_KINDS.length);
      (isSendable ? sendable : remaining).push(pending);
    }
    this.#pendingRequests = remaining;
    return sendable;
  }

  /** Drops expired requests, so that no connection is opened for them. */
  #dropExpired(): void {
    const nowMs = systemClock.monotonicMs();
    for (const { batch } of this.#pendingRequests) if (nowMs >= batch.endsAtMs) batch.timeOut();
    this.#pendingRequests = this.#pendingRequests.filter(({ batch }) => !batch.isSettled);
    // The timeout of a dropped session request has rejected it already, or is about to.
    this.#sessionRequests = this.#sessionRequests.filter(({ timeout }) => nowMs < timeout.endsAtMs);
  }

  #rejectAll(cause: unknown): void {
    for (const pending of this.#pendingRequests.splice(0))
      pending.batch.settle(pending, neverSentResult(cause));
    for (const sessionRequest of this.#sessionRequests.splice(0)) sessionRequest.reject(cause);
  }
}
