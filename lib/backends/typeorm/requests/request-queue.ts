import { type BatchResult, type RequestBatch, neverSentResult } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import { queueMicrotask } from '../../../core/real-time.js';
import { PendingBatch, type PendingRequest, REQUEST_KINDS } from './pending-batch.js';
import { Timeout } from './timeout.js';
import type { Session } from '../dialects/dialect.js';
import { KeysInFlight } from './keys-in-flight.js';
import type { Connection } from '../connections/connection.js';
import { ConnectionPool } from '../connections/connection-pool.js';

/** A statement for more of them would keep its connection, and the rows it locks, for too long. */
const MAX_REQUESTS_AT_ONCE = 1_000;

interface RequestQueueParts {
  readonly maxConnections: number;
  connect(): Promise<Connection>;
  /**
   * Brings errands of which none was sent yet, and tells each its answer. `settle` is for one whose statement has ended,
   * also if nobody waits for the answer any more. Never rejects.
   */
  execute(
    pendingRequests: readonly PendingRequest[],
    session: Session,
    onStatementEnd: (pending: PendingRequest) => void,
  ): Promise<void>;
}

/** Somebody who wants a connection to himself. */
interface SessionRequest {
  readonly timeout: Timeout;
  start(session: Session): Promise<void>;
  reject(cause: unknown): void;
}

/**
 * Where requests wait for a free connection. The first one leaves at once; what is asked for while all connections are
 * busy gathers, and leaves together. Requests for one key take effect in the order in which they were made.
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

  /** Does work over a connection that nobody else uses meanwhile. */
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
   * Opens nothing any more; what waits for a connection leaves over those that stand, or is refused. Settles when all
   * that was asked for has been answered, which limits bound.
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
        this.#pool.putBack(connection); // All of them wait for one that is under way.
        return;
      }
    }
  }

  /** Once for all keys that a statement sets free. */
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

  /** In turns, so that neither many visitors nor many requests keep the others waiting. */
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

  /** The next errands that may leave together, without those whose time is over or whose turn has not come. */
  #takeSendable(): readonly PendingRequest[] {
    const nowMs = systemClock.monotonicMs();
    const sendable: PendingRequest[] = [];
    const remaining: PendingRequest[] = [];
    const ranks = new Map<string, number>();
    for (const pending of this.#pendingRequests) {
      const { batch, request, kind } = pending;
      // A blocked event loop may see this before the timer.
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

  /** So that no connection is opened for them. */
  #dropExpired(): void {
    const nowMs = systemClock.monotonicMs();
    for (const { batch } of this.#pendingRequests) if (nowMs >= batch.endsAtMs) batch.timeOut();
    this.#pendingRequests = this.#pendingRequests.filter(({ batch }) => !batch.isSettled);
    this.#sessionRequests = this.#sessionRequests.filter(({ timeout }) => nowMs < timeout.endsAtMs); // Their deadlines tell them.
  }

  #rejectAll(cause: unknown): void {
    for (const pending of this.#pendingRequests.splice(0))
      pending.batch.settle(pending, neverSentResult(cause));
    for (const sessionRequest of this.#sessionRequests.splice(0)) sessionRequest.reject(cause);
  }
}
