import { LockUnavailableError } from '../../lib/core/errors.js';

/**
 * Repeats the request until the store answers in time, as an application would. A call that does not wait gives the
 * store one second, and a machine may stand still for longer.
 */
export async function onceReachable<T>(request: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof LockUnavailableError)) throw error;
    }
  }
}
