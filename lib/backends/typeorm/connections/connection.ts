import type { QueryRunner } from 'typeorm';
import { systemClock } from '../../../core/clock.js';
import { StoreTimeoutError, withTimeout } from '../../../core/requests/store-timeout.js';
import type { Dialect, SendStatement } from '../dialects/dialect.js';
import { type Session, Timeout } from './session.js';

/** A router or proxy between this process and the database may have dropped a connection that was idle for so long. */
const MAX_IDLE_MS = 60_000;
/** Even after so short a pause a connection may be dead without an error, so it is checked before its next use. */
const CHECK_AFTER_IDLE_MS = 1_000;

/** For the request to end a statement that has exceeded its timeout. */
const CANCEL_TIMEOUT_MS = 1_000;

interface ConnectionParts {
  readonly dialect: Dialect;
  readonly send: SendStatement;
  readonly runner: QueryRunner;
  /** The driver's own connection. Statements are sent over it directly: the runner would take as long as they do. */
  readonly driverConnection: object;
}

/** One database connection of the backend, from its opening to its end. */
export class Connection {
  readonly driverConnection: object;
  /** Resolves when the connection has ended and the driver has noticed; at once for a database in this process. */
  readonly ended: Promise<void>;
  readonly #dialect: Dialect;
  readonly #send: SendStatement;
  readonly #runner: QueryRunner;
  #isOpen = true;
  #ending: Promise<void> | undefined;
  #cancelling: Promise<unknown> | undefined;
  readonly #destroyed = new AbortController();
  #lastUsedAtMs = systemClock.monotonicMs();

  constructor({ dialect, send, runner, driverConnection }: ConnectionParts) {
    this.#dialect = dialect;
    this.#send = send;
    this.#runner = runner;
    this.driverConnection = driverConnection;
    const socket = dialect.socketOf(driverConnection);
    this.ended = socket
      ? new Promise((resolve) => socket.once('close', () => resolve(this.#end().catch(() => undefined))))
      : Promise.resolve();
  }

  /** Whether the connection is open, and was used so recently that it is probably still alive. */
  get isUsable(): boolean {
    const isFresh = systemClock.monotonicMs() - this.#lastUsedAtMs < MAX_IDLE_MS;
    return !this.#hasEnded && (isFresh || this.#dialect.isInProcess === true);
  }

  /** Whether it was idle for so long that {@link ping} must come before its next use. */
  get needsCheck(): boolean {
    return !this.#dialect.isInProcess && systemClock.monotonicMs() - this.#lastUsedAtMs > CHECK_AFTER_IDLE_MS;
  }

  /** Whether the database replies within the timeout. */
  async ping(timeoutMs: number): Promise<boolean> {
    try {
      await this.openSession(new Timeout(timeoutMs)).query('SELECT 1');
      return true;
    } catch {
      return false;
    }
  }

  /** The socket or the driver may show the end before the event `close` arrives. */
  get #hasEnded(): boolean {
    const { driverConnection } = this;
    const socket = this.#dialect.socketOf(driverConnection);
    const isCut = socket !== undefined && (socket.destroyed || !socket.writable);
    return !this.#isOpen || isCut || this.#dialect.isBroken?.(driverConnection) === true;
  }

  /** A session destroys its connection if a statement exceeds the timeout, or if the server has become read-only. */
  openSession(timeout: Timeout): Session {
    const { driverConnection } = this;
    const run = (sql: string, parameters: readonly unknown[] = []) =>
      this.#send(driverConnection, sql, parameters);
    const throwIfEnded = () => {
      timeout.throwIfOver();
      if (this.#hasEnded) throw new Error('the connection to the database has ended');
    };
    const query = async (sql: string, parameters: readonly unknown[] = []) => {
      throwIfEnded();
      try {
        const result = await timeout.within(Promise.resolve(run(sql, parameters)));
        this.#lastUsedAtMs = systemClock.monotonicMs();
        return result;
      } catch (cause) {
        if (cause instanceof StoreTimeoutError) this.#giveUp();
        else if (this.#dialect.classifyError(cause) === 'read only') this.destroy();
        throw cause;
      }
    };
    return { timeout, driverConnection, throwIfEnded, run, query };
  }

  /** Whether the open connection keeps the process from exiting. */
  setKeepsProcessAlive(keepsAlive: boolean): void {
    const socket = this.#dialect.socketOf(this.driverConnection);
    if (keepsAlive) socket?.ref();
    else socket?.unref();
  }

  /**
   * Destroys the socket, after which nothing is sent. The driver then treats the connection as lost, and only then does the
   * connection leave TypeORM's pool. While its statement is being cancelled, the socket is destroyed after that.
   */
  destroy(): void {
    if (!this.#cancelling) this.#destroyNow();
  }

  #destroyNow(): void {
    this.#isOpen = false;
    this.#destroyed.abort();
    const socket = this.#dialect.socketOf(this.driverConnection);
    if (socket) socket.destroy();
    else void this.#end().catch(() => undefined);
  }

  /** Returns the connection to TypeORM's pool, which closes it. */
  async close(): Promise<void> {
    await this.#cancelling;
    await this.#end();
  }

  /**
   * Destroys the connection after the server was asked to end the statement. Otherwise each timeout would leave a waiting
   * process in the server. Nothing waits for this.
   */
  #giveUp(): void {
    const { driverConnection } = this;
    const { cancelStatement } = this.#dialect;
    if (!cancelStatement || this.#hasEnded) {
      this.destroy();
      return;
    }
    this.#isOpen = false;
    // The driver may still write, but no longer sends.
    this.#dialect.socketOf(driverConnection)?.cork();
    // Whatever the driver does, the socket is destroyed.
    const cancel = async () => cancelStatement(driverConnection, this.#destroyed.signal);
    const cancelled = cancel().catch(() => undefined);
    this.#cancelling = withTimeout(systemClock, CANCEL_TIMEOUT_MS, cancelled).finally(() =>
      this.#destroyNow(),
    );
  }

  #end(): Promise<void> {
    this.#isOpen = false;
    return (this.#ending ??= this.#runner.release());
  }
}
