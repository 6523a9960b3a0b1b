import type { Dialect } from '../dialects/dialect.js';
import type { Timeout } from './timeout.js';

/** Many, because SQLite does not queue its writers: each finds the database busy again and again. */
export const MAX_ATTEMPTS = 100;
const MAX_BACKOFF_MS = 30;

/**
 * Repeats the step while other transactions block it and the timeout has not ended. Rejects with the last error after
 * {@link MAX_ATTEMPTS} attempts, or at once with any other error.
 */
export async function retryWhileBusy<T>(
  { classifyError }: Pick<Dialect, 'classifyError'>,
  timeout: Timeout,
  step: () => T | Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await step();
    } catch (cause) {
      if (classifyError(cause) !== 'busy' || attempt >= MAX_ATTEMPTS) throw cause;
      if (!(await timeout.pause(backoffMs(attempt)))) throw cause;
    }
  }
}

/** Random, so that two transactions that blocked each other do not retry in step. */
export const backoffMs = (attempt: number) => Math.random() * Math.min(2 ** attempt, MAX_BACKOFF_MS);
