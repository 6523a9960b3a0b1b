import { systemClock } from '../../../core/clock.js';
import { StoreTimeoutError, withTimeout } from '../../../core/requests/store-timeout.js';

/** Many, because SQLite does not queue its writers: each finds the database busy again and again. */
const MAX_ATTEMPTS = 100;
const MAX_BACKOFF_MS = 30;

/** Random, so that two transactions that blocked each other do not retry in step. */
export const backoffMs = (attempt: number) => Math.random() * Math.min(2 ** attempt, MAX_BACKOFF_MS);

/** The moment after which nothing more is sent over a connection, and a silent connection is given up. */
export class Timeout {
  readonly endsAtMs: number;
  readonly #timeoutMs: number;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.endsAtMs = systemClock.monotonicMs() + timeoutMs;
  }

  /** Reads the clock, because after a blocked event loop a timer may be late. */
  get leftMs(): number {
    return this.endsAtMs - systemClock.monotonicMs();
  }

  get passedMs(): number {
    return this.#timeoutMs - this.leftMs;
  }

  get error(): StoreTimeoutError {
    return new StoreTimeoutError(this.#timeoutMs);
  }

  /** @throws StoreTimeoutError */
  throwIfOver(): void {
    if (this.leftMs <= 0) throw this.error;
  }

  /** Waits for the work, but rejects with {@link StoreTimeoutError} once the timeout has ended. */
  async within<T>(work: Promise<T>): Promise<T> {
    if (!(await withTimeout(systemClock, this.leftMs, work))) throw this.error;
    return await work;
  }

  /** Pauses after a failed attempt. Resolves to `false`, at once, if there were too many or the timeout would end before. */
  async pauseAfter(attempt: number): Promise<boolean> {
    const pauseMs = backoffMs(attempt);
    if (attempt >= MAX_ATTEMPTS || pauseMs >= this.leftMs) return false;
    // SQLite has no socket that would keep the process alive while a caller waits.
    await new Promise<void>((resolve) => systemClock.after(pauseMs, resolve, { awaited: true }));
    return true;
  }
}

/** Sends one statement over the connection of the session. */
export type Query = (sql: string, parameters?: readonly unknown[]) => Promise<unknown>;

/** One use of a connection, until its timeout ends. */
export interface Session {
  readonly timeout: Timeout;
  /** The driver's own connection. */
  readonly driverConnection: object;
  /** Throws if the timeout or the connection has ended meanwhile, so that a request can be reported as never sent. */
  throwIfEnded(): void;
  /** Rejects when the timeout ends; the connection is then destroyed. */
  readonly query: Query;
  /** Sends without a timeout, and synchronously if the driver is synchronous. */
  run(sql: string, parameters?: readonly unknown[]): unknown;
}

/** Repeats the step while other transactions block it. Rejects with the last error if the attempts or the time are used up. */
export async function retryWhileBusy<T>(
  { classifyError }: { classifyError(cause: unknown): string },
  timeout: Timeout,
  step: () => T | Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await step();
    } catch (cause) {
      if (classifyError(cause) !== 'busy' || !(await timeout.pauseAfter(attempt))) throw cause;
    }
  }
}
