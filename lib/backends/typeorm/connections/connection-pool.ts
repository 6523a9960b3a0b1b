import { type Timer, systemClock } from '../../../core/clock.js';
import { withTimeout } from '../../../core/requests/with-timeout.js';
import type { Connection } from './connection.js';

/** Pause before the next attempt to open a second connection, after the database has rejected one. */
const RECONNECT_AFTER_MS = 1_000;

/** If the check of an idle connection takes longer, another connection is opened beside it. */
const SLOW_CHECK_MS = 500;
/** If the check takes longer, the connection is destroyed, even if no other can be opened. */
const CHECK_TIMEOUT_MS = 10_000;

interface ConnectionPoolParts {
  readonly maxSize: number;
  connect(): Promise<Connection>;
  /** Called when a connection is free, or another may be opened. */
  onChange(): void;
  /** Called when no connection is open, and none could be opened. */
  onUnavailable(cause: unknown): void;
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

  constructor(parts: ConnectionPoolParts) {
    this.#parts = parts;
  }

  /** Whether {@link open} may be called, after {@link take} has returned none. */
  get mayOpen(): boolean {
    if (this.#free.length > 0) return this.#checkedConnection === undefined;
    const isPausing = this.#retryTimer !== undefined && this.#openCount > 0;
    return !this.#isClosed && !isPausing && this.#openCount + this.#openingCount < this.#parts.maxSize;
  }

  /** Returns a free connection that can be used at once. */
  take(): Connection | undefined {
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

  putBack(connection: Connection): void {
    if (connection.isUsable) this.#free.push(connection);
    else this.#drop(connection);
    this.#failIfClosed();
  }

  /** Checks an idle connection, or opens another one. */
  async open(): Promise<void> {
    const idle = this.#free.pop();
    await (idle ? this.#check(idle) : this.#connect());
    this.#failIfClosed();
    this.#parts.onChange();
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
    this.#parts.onChange();
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

  /** Open connections can still be used. Once there are none, waiting requests fail. */
  close(): void {
    this.#isClosed = true;
    this.#retryTimer?.cancel();
    this.#failIfClosed();
  }

  #onConnectFailed(cause: unknown): void {
    if (this.#openCount === 0) {
      this.#parts.onUnavailable(cause);
      return;
    }
    if (this.#isClosed) return;
    this.#retryTimer?.cancel();
    this.#retryTimer = systemClock.after(RECONNECT_AFTER_MS, () => {
      this.#retryTimer = undefined;
      this.#parts.onChange();
    });
  }

  #failIfClosed(): void {
    if (!this.#isClosed || this.#openCount + this.#openingCount > 0) return;
    this.#parts.onUnavailable(new Error('the connections to the database were closed'));
  }

  #drop(connection: Connection): void {
    this.#openCount -= 1;
    connection.destroy();
  }
}
