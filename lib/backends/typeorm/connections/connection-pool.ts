import { type Timer, systemClock } from '../../../core/clock.js';
import { InFlight } from '../../../core/requests/in-flight.js';
import { withTimeout } from '../../../core/requests/store-timeout.js';
import type { Session, Timeout } from './session.js';
import type { Connection } from './connection.js';

/** Pause before the next attempt to open a second connection, after the database has rejected one. */
const RECONNECT_AFTER_MS = 1_000;

/** If the check of an idle connection takes longer, another connection is opened beside it. */
const SLOW_CHECK_MS = 500;
/** If the check takes longer, the connection is destroyed, even if no other can be opened. */
const CHECK_TIMEOUT_MS = 10_000;

/** A batch of requests, the clean-up of rows that nobody waits for, or anything else. */
type Use = 'batch' | 'clean-up' | 'other';

/** A use that waits for a connection. */
interface WaitingUse {
  readonly use: Use;
  readonly timeout: Timeout;
  start(connection: Connection): void;
  reject(cause: Error): void;
}

interface ConnectionPoolParts {
  readonly maxSize: number;
  connect(): Promise<Connection>;
}

/** The connections that send requests. Opens one only on demand, and none after {@link close}. */
export class ConnectionPool {
  readonly #parts: ConnectionPoolParts;
  #free: Connection[] = [];
  /** Free or busy. */
  #openCount = 0;
  #openingCount = 0;
  #retryTimer: Timer | undefined;
  #isClosed = false;
  /** An idle connection whose check has no result yet. */
  #checkedConnection: Connection | undefined;
  #isCheckOverdue = false;
  #waiting: readonly WaitingUse[] = [];
  #lastUse: Use | undefined;
  readonly #uses = new InFlight();

  constructor(parts: ConnectionPoolParts) {
    this.#parts = parts;
  }

  /**
   * Does the work over a connection that nothing else uses meanwhile. Begins at once if a connection is free. Rejects if
   * there is none within the timeout, or none can be opened.
   */
  async use<T>(use: Use, timeout: Timeout, work: (session: Session) => Promise<T>): Promise<T> {
    const isAwaited = use !== 'clean-up';
    if (isAwaited) this.#uses.begin();
    try {
      const connection = this.#take() ?? (await this.#waitForConnection(use, timeout));
      this.#lastUse = use;
      try {
        return await work(connection.openSession(timeout));
      } finally {
        this.#putBack(connection);
      }
    } finally {
      if (isAwaited) this.#uses.end();
    }
  }

  /**
   * Opens no more connections. Waiting uses get an open connection, or are rejected if there is none. Resolves when all
   * uses have ended, which their timeouts limit. A clean-up may still run: it ends with its connection.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#retryTimer?.cancel();
    this.#rejectIfClosed();
    await this.#uses.whenIdle();
  }

  #waitForConnection(use: Use, timeout: Timeout): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const end = () => {
        timer.cancel();
        this.#waiting = this.#waiting.filter((waiting) => waiting !== waitingUse);
      };
      const waitingUse: WaitingUse = {
        ...{ use, timeout },
        start(connection) {
          end();
          resolve(connection);
        },
        reject(cause) {
          end();
          reject(cause);
        },
      };
      const timer = systemClock.after(timeout.leftMs, () => waitingUse.reject(timeout.error));
      this.#waiting = [...this.#waiting, waitingUse];
      this.#serve();
    });
  }

  /** Gives free connections to waiting uses, and opens another one if they are not enough. */
  #serve(): void {
    // After a blocked event loop their timers may be late, and no connection should be opened for them.
    for (const { timeout, reject } of this.#waiting) if (timeout.leftMs <= 0) reject(timeout.error);
    while (this.#waiting.length > 0) {
      const connection = this.#take();
      if (!connection) {
        if (this.#mayOpen) void this.#open();
        return;
      }
      // Batches and other uses alternate, so that neither can starve the other.
      const next = this.#waiting.find(({ use }) => use !== this.#lastUse) ?? this.#waiting[0];
      next?.start(connection);
    }
  }

  #rejectAll(cause: unknown): void {
    for (const waitingUse of this.#waiting) waitingUse.reject(cause as Error);
  }

  /** Whether {@link #open} may be called, after {@link #take} has returned none. */
  get #mayOpen(): boolean {
    if (this.#free.length > 0) return this.#checkedConnection === undefined;
    const isPausing = this.#retryTimer !== undefined && this.#openCount > 0;
    return !this.#isClosed && !isPausing && this.#openCount + this.#openingCount < this.#parts.maxSize;
  }

  /** Returns a free connection that can be used at once. */
  #take(): Connection | undefined {
    for (let connection = this.#free.pop(); connection; connection = this.#free.pop()) {
      if (connection.isUsable && !connection.needsCheck) return connection;
      if (connection.isUsable) {
        this.#free.push(connection);
        return undefined;
      }
      this.#drop(connection);
    }
    return undefined;
  }

  #putBack(connection: Connection): void {
    if (connection.isUsable) this.#free.push(connection);
    else this.#drop(connection);
    this.#rejectIfClosed();
    this.#serve();
  }

  /** Checks an idle connection, or opens another one. */
  async #open(): Promise<void> {
    const idle = this.#free.pop();
    await (idle ? this.#check(idle) : this.#connect());
    this.#rejectIfClosed();
    this.#serve();
  }

  /**
   * A slow reply counts as a reply: the silent connection is kept until another one is open or the pool needs its place, at
   * most {@link CHECK_TIMEOUT_MS}.
   */
  async #check(idle: Connection): Promise<void> {
    this.#checkedConnection = idle;
    const pinging = idle.ping(CHECK_TIMEOUT_MS);
    if (!(await withTimeout(systemClock, SLOW_CHECK_MS, pinging))) this.#replaceSilent();
    const isAlive = await pinging;
    if (this.#checkedConnection !== idle) return;
    if (isAlive) this.#free.push(idle);
    else this.#drop(idle);
    this.#endCheck();
  }

  /** If one idle connection is dead, the others that were idle are probably dead too, so they are dropped. */
  #replaceSilent(): void {
    this.#isCheckOverdue = true;
    const idle = this.#free.filter((connection) => connection.needsCheck);
    this.#free = this.#free.filter((connection) => !idle.includes(connection));
    for (const connection of idle) this.#drop(connection);
    if (this.#openCount >= this.#parts.maxSize) this.#dropSilent();
    this.#serve();
  }

  #dropSilent(): void {
    if (!this.#checkedConnection || !this.#isCheckOverdue) return;
    this.#drop(this.#checkedConnection);
    this.#endCheck();
  }

  #endCheck(): void {
    this.#checkedConnection = undefined;
    this.#isCheckOverdue = false;
  }

  async #connect(): Promise<void> {
    this.#openingCount += 1;
    try {
      this.#free.push(await this.#parts.connect());
      this.#openCount += 1;
      this.#dropSilent();
    } catch (cause) {
      this.#onConnectFailed(cause);
    } finally {
      this.#openingCount -= 1;
    }
  }

  #onConnectFailed(cause: unknown): void {
    if (this.#openCount === 0) {
      this.#rejectAll(cause);
      return;
    }
    if (this.#isClosed) return;
    this.#retryTimer?.cancel();
    this.#retryTimer = systemClock.after(RECONNECT_AFTER_MS, () => {
      this.#retryTimer = undefined;
      this.#serve();
    });
  }

  #rejectIfClosed(): void {
    if (!this.#isClosed || this.#openCount + this.#openingCount > 0) return;
    this.#rejectAll(new Error('the connections to the database were closed'));
  }

  #drop(connection: Connection): void {
    this.#openCount -= 1;
    connection.destroy();
  }
}
