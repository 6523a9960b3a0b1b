import type { Clock } from './clock.js';

/** Resolves after `delayMs`, or earlier when the signal aborts. Never rejects. */
export async function sleep(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted || delayMs <= 0) return;
  await new Promise<void>((resolve) => {
    const wake = () => {
      timer.cancel();
      signal.removeEventListener('abort', wake);
      resolve();
    };
    const timer = clock.after(delayMs, wake);
    signal.addEventListener('abort', wake);
  });
}
