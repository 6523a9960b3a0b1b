import type { Clock, TimerOptions } from '../clock.js';
import { SharedAcrossCopies } from '../package-copies.js';
import { nextTurn } from '../real-time.js';

/** The store did not answer in time. It may only be slow, so waiters stay queued. */
@SharedAcrossCopies('StoreTimeoutError')
export class StoreTimeoutError extends Error {
  constructor(timeoutMs: number) {
    super(`no answer from the store within ${Math.round(timeoutMs)} ms`);
    this.name = 'StoreTimeoutError';
  }
}

/**
 * Waits for the work, but at most `timeoutMs`. Returns whether it resolved in time. Rejects if the work rejects in
 * time.
 */
export async function withTimeout(
  clock: Clock,
  timeoutMs: number,
  work: Promise<unknown>,
  options?: TimerOptions,
): Promise<boolean> {
  // With no time left, wait one turn of the event loop: work that has settled already must count. A test clock that
  // stands still never fires a timer.
  if (timeoutMs <= 0) return Promise.race([work.then(() => true), nextTurn().then(() => false)]);
  let onTimeout = (): void => undefined;
  const timer = clock.after(timeoutMs, () => onTimeout(), options);
  try {
    return await Promise.race([
      work.then(() => true),
      new Promise<false>((resolve) => (onTimeout = () => resolve(false))),
    ]);
  } finally {
    timer.cancel();
  }
}

/**
 * Sends a request and returns its reply.
 *
 * @throws StoreTimeoutError if there is none after `timeoutMs`
 */
export async function replyWithin<T>(
  clock: Clock,
  timeoutMs: number,
  send: (timeoutMs: number) => Promise<T>,
): Promise<T> {
  const reply = send(timeoutMs);
  if (await withTimeout(clock, timeoutMs, reply)) return reply;
  throw new StoreTimeoutError(timeoutMs);
}
