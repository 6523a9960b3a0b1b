import type { Clock, TimerOptions } from '../clock.js';
import { nextTurn } from '../real-time.js';

/** Waits for the work, but not longer than that. Says whether it settled in time; its rejection is passed on. */
export async function withTimeout(
  clock: Clock,
  timeoutMs: number,
  work: Promise<unknown>,
  options?: TimerOptions,
): Promise<boolean> {
  // No time is still one turn of the event loop: what has settled already is seen, also where the clock stands still.
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
