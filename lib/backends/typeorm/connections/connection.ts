import type { QueryRunner } from 'typeorm';
import { systemClock } from '../../../core/clock.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';
import { Timeout } from '../requests/timeout.js';
import type { Dialect, SendStatement, Session } from '../dialects/dialect.js';

/** Whoever stands between us and the database may have forgotten a connection that was silent for so long. */
const MAX_IDLE_MS = 60_000;
/** Even one that was idle for so short a time may be gone, with no error and no answer. */
const CHECK_AFTER_IDLE_MS = 1_000;

interface ConnectionParts {
  readonly dialect: Dialect;
  readonly send: SendStatement;
  readonly runner: QueryRunner;
  /** What the runner got from the driver: statements go over it without the runner, which takes as long as they do. */
  readonly driverConnection: object;
}

/** One connection of ours, from its opening to its end. */
export class Connection {
  readonly driverConnection: object;
  /** Settles when it has ended and the driver knows; at once for a database in this process. */
  readonly ended: Promise<void>;
  readonly #dialect: Dialect;
  readonly #send: SendStatement;
  readonly #runner: QueryRunner;
  #isOpen = true;
  #ending: Promise<void> | undefined;
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

  /** It has not ended, as far as we know, and is not likely to have ended without our knowing. */
  get isUsable(): boolean {
    const isFresh = systemClock.monotonicMs() - this.#lastUsedAtMs < MAX_IDLE_MS;
    return !this.#hasEnded && (isFresh || this.#dialect.isInProcess === true);
  }

  /** It was idle for so long that {@link ping} comes before its next use. */
  get needsCheck(): boolean {
    return !this.#dialect.isInProcess && systemClock.monotonicMs() - this.#lastUsedAtMs > CHECK_AFTER_IDLE_MS;
  }

  /** Whether the database still answers over it. */
  async ping(timeoutMs: number): Promise<boolean> {
    using timeout = new Timeout(timeoutMs);
    try {
      await this.openSession(timeout).query('SELECT 1');
      return true;
    } catch {
      return false;
    }
  }

  /** Its socket, or its driver, may know that before `close` is heard. */
  get #hasEnded(): boolean {
    const { driverConnection } = this;
    const socket = this.#dialect.socketOf(driverConnection);
    const isCut = socket !== undefined && (socket.destroyed || !socket.writable);
    return !this.#isOpen || isCut || this.#dialect.isBroken?.(driverConnection) === true;
  }

  openSession(timeout: Timeout): Session {
    const { driverConnection } = this;
    const run = (sql: string, parameters: readonly unknown[] = []) =>
      this.#send(driverConnection, sql, parameters);
    const throwIfEnded = () => {
      if (this.#hasEnded) throw new Error('the connection to the database has ended');
    };
    const query = async (sql: string, parameters: readonly unknown[] = []) => {
      timeout.throwIfOver();
      throwIfEnded();
      try {
        const result = await timeout.within(Promise.resolve(run(sql, parameters)));
        this.#lastUsedAtMs = systemClock.monotonicMs();
        return result;
      } catch (cause) {
        if (cause instanceof StoreTimeoutError || this.#dialect.classifyError(cause) === 'read only')
          this.destroy();
        throw cause;
      }
    };
    return { timeout, throwIfEnded, run, query };
  }

  /** Keeps no process alive from now on, or does so again. */
  setKeepsProcessAlive(keepsAlive: boolean): void {
    const socket = this.#dialect.socketOf(this.driverConnection);
    if (keepsAlive) socket?.ref();
    else socket?.unref();
  }

  /** Nothing is sent over it any more. Its driver takes it for lost, and only then does it leave the pool. */
  destroy(): void {
    this.#isOpen = false;
    const socket = this.#dialect.socketOf(this.driverConnection);
    if (socket) socket.destroy();
    else void this.#end().catch(() => undefined);
  }

  /** Gives it back, so that the pool can close it. */
  close(): Promise<void> {
    return this.#end();
  }

  #end(): Promise<void> {
    this.#isOpen = false;
    return (this.#ending ??= this.#runner.release());
  }
}
