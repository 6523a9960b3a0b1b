import type { QueryRunner } from 'typeorm';
import { systemClock } from '../../core/clock.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';
import { Deadline } from './deadline.js';
import type { Dialect, Send, Visit } from './dialect.js';

/** Whoever stands between us and the database may have forgotten a connection that was silent for so long. */
const IDLE_LIMIT_MS = 60_000;
/** Even one that was idle for so short a time may be gone, with no error and no answer. */
const UNCHECKED_MS = 1_000;

interface LinkParts {
  readonly dialect: Dialect;
  readonly send: Send;
  readonly runner: QueryRunner;
  /** What the runner got from the driver: statements go over it without the runner, which takes as long as they do. */
  readonly connection: object;
}

/** One connection of ours, from its opening to its end. */
export class Link {
  readonly connection: object;
  /** Settles when it has ended and the driver knows; at once for a database in this process. */
  readonly ended: Promise<void>;
  readonly #dialect: Dialect;
  readonly #send: Send;
  readonly #runner: QueryRunner;
  #isOpen = true;
  #ending: Promise<void> | undefined;
  #usedAtMs = systemClock.monotonicMs();

  constructor({ dialect, send, runner, connection }: LinkParts) {
    this.#dialect = dialect;
    this.#send = send;
    this.#runner = runner;
    this.connection = connection;
    const socket = dialect.socketOf(connection);
    this.ended = socket
      ? new Promise((resolve) => socket.once('close', () => resolve(this.#end().catch(() => undefined))))
      : Promise.resolve();
  }

  /** It has not ended, as far as we know, and is not likely to have ended without our knowing. */
  get isUsable(): boolean {
    const isFresh = systemClock.monotonicMs() - this.#usedAtMs < IDLE_LIMIT_MS;
    return !this.#hasEnded && (isFresh || this.#dialect.isInProcess === true);
  }

  /** It was idle for so long that {@link answers} comes before its next use. */
  get needsCheck(): boolean {
    return !this.#dialect.isInProcess && systemClock.monotonicMs() - this.#usedAtMs > UNCHECKED_MS;
  }

  /** Whether the database still answers over it. */
  async answers(limitMs: number): Promise<boolean> {
    using deadline = new Deadline(limitMs);
    try {
      await this.visit(deadline).query('SELECT 1');
      return true;
    } catch {
      return false;
    }
  }

  /** Its socket, or its driver, may know that before `close` is heard. */
  get #hasEnded(): boolean {
    const { connection } = this;
    const socket = this.#dialect.socketOf(connection);
    const isCut = socket !== undefined && (socket.destroyed || !socket.writable);
    return !this.#isOpen || isCut || this.#dialect.isBroken?.(connection) === true;
  }

  visit(deadline: Deadline): Visit {
    const { connection } = this;
    const run = (sql: string, parameters: readonly unknown[] = []) => this.#send(connection, sql, parameters);
    const throwIfEnded = () => {
      if (this.#hasEnded) throw new Error('the connection to the database has ended');
    };
    const query = async (sql: string, parameters: readonly unknown[] = []) => {
      deadline.throwIfOver();
      throwIfEnded();
      try {
        const answer = await deadline.within(Promise.resolve(run(sql, parameters)));
        this.#usedAtMs = systemClock.monotonicMs();
        return answer;
      } catch (cause) {
        if (cause instanceof NoAnswerInTime || this.#dialect.faultOf(cause) === 'read only') this.giveUp();
        throw cause;
      }
    };
    return { deadline, throwIfEnded, run, query };
  }

  /** Keeps no process alive from now on, or does so again. */
  setAwaited(isAwaited: boolean): void {
    const socket = this.#dialect.socketOf(this.connection);
    if (isAwaited) socket?.ref();
    else socket?.unref();
  }

  /** Nothing is sent over it any more. Its driver takes it for lost, and only then does it leave the pool. */
  giveUp(): void {
    this.#isOpen = false;
    const socket = this.#dialect.socketOf(this.connection);
    if (socket) socket.destroy();
    else void this.#end().catch(() => undefined);
  }

  /** Gives it back, so that the pool can close it. */
  release(): Promise<void> {
    return this.#end();
  }

  #end(): Promise<void> {
    this.#isOpen = false;
    return (this.#ending ??= this.#runner.release());
  }
}
