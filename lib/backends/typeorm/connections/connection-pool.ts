import { withTimeout } from '../../../core/requests/with-timeout.js';
import { type Timer, systemClock } from '../../../core/clock.js';
import type { Connection } from './connection.js';

/** Before another connection is tried beside one that stands, while the database takes no more of them. */
const RECONNECT_AFTER_MS = 1_000;

/** After such a silence of a connection that was idle, another one is opened beside it. */
const SLOW_CHECK_MS = 500;
/** After such a silence it is given up, also if no other can be opened. */
const CHECK_TIMEOUT_MS = 10_000;

interface ConnectionPoolParts {
  readonly maxSize: number;
  connect(): Promise<Connection>;
  /** A connection is free, or another may be opened. */
  onChange(): void;
  /** There is no connection, and none can be had for now. */
  onUnavailable(cause: unknown): void;
}

/** The connections over which requests leave. None is opened that nobody asks for, and none after the end. */
export class ConnectionPool {
  readonly #parts: ConnectionPoolParts;
  #free: Connection[] = [];
  /** Free or busy. */
  #openCount = 0;
  #openingCount = 0;
  #retryTimer: Timer | undefined;
  #isClosed = false;
  /** Was idle, and has not answered yet. */
  #checkedConnection: Connection | undefined;
  #isCheckOverdue = false;

  constructor(parts: ConnectionPoolParts) {
    this.#parts = parts;
  }

  /** After {@link take} found none. */
  get mayOpen(): boolean {
    if (this.#free.length > 0) return this.#checkedConnection === undefined;
    const isPausing = this.#retryTimer !== undefined && this.#openCount > 0;
    return !this.#isClosed && !isPausing && this.#openCount + this.#openingCount < this.#parts.maxSize;
  }

  /** One that can be used at once. */
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

  /** Makes one ready that was idle, or opens another. */
  async open(): Promise<void> {
    const idle = this.#free.pop();
    await (idle ? this.#check(idle) : this.#connect());
    this.#failIfClosed();
    this.#parts.onChange();
  }

  /** A slow answer is as good as any: what is silent stays until another connection stands or its place is needed. */
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

  /** Where one is gone, those that were idle for longer will be gone too. */
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

  /** What stands may still be used; when nothing does, whoever waits is refused. */
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
