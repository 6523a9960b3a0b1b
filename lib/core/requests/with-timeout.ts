import type { Clock, TimerOptions } from '../clock.js';
import { nextTurn } from '../real-time.js';

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
