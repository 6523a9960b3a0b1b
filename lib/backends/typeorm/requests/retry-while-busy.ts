import type { Timeout } from './timeout.js';
import type { Dialect } from '../dialects/dialect.js';

/** Many, because SQLite does not queue its writers: each of them finds it busy again and again. */
export const MAX_ATTEMPTS = 100;
const MAX_BACKOFF_MS = 30;

/** Takes a step again while only others are in the way and there is time; then ends with the last error. */
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

/** Random, so that those who met once do not meet again. */
export const backoffMs = (attempt: number) => Math.random() * Math.min(2 ** attempt, MAX_BACKOFF_MS);
