import type { Clock, TimerOptions } from '../clock.js';
import { SharedAcrossCopies } from '../package-copies.js';
import { nextTurn } from '../real-timers.js';

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
  if (timeoutMs > 0 && (await isDoneWithin(clock, timeoutMs, work, options))) return true;
  // If the process stood still, its timers run before the replies that have arrived. Those count, as does work that has
  // settled already when no time is left. A test clock that stands still never fires a timer.
  return Promise.race([work.then(() => true), nextTurn().then(() => false)]);
}

async function isDoneWithin(
  clock: Clock,
  timeoutMs: number,
  work: Promise<unknown>,
  options?: TimerOptions,
): Promise<boolean> {
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
 * Makes a request that nothing takes back, and that the store refuses after `timeoutMs`. If it fails after it was sent, rejects
 * only at the end of that time. Otherwise it could take effect after a later request of the caller, and undo that.
 */
export async function rejectWhenRefused<T>(
  clock: Clock,
  timeoutMs: number,
  request: (onSend: () => void) => Promise<T>,
): Promise<T> {
  const endsAtMs = clock.monotonicMs() + timeoutMs;
  const state = { wasSent: false };
  try {
    return await request(() => void (state.wasSent = true));
  } catch (cause) {
    const leftMs = endsAtMs - clock.monotonicMs();
    if (state.wasSent && leftMs > 0)
      await new Promise<void>((resolve) => clock.after(leftMs, resolve, { awaited: true }));
    throw cause;
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
