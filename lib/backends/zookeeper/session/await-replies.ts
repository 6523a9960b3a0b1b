import { type TimerOptions, systemClock } from '../../../core/clock.js';
import type { Deadline } from '../../../core/requests/deadline.js';
import { StoreTimeoutError, withTimeout } from '../../../core/requests/store-timeout.js';
import type { HostConnection } from '../wire/host-connection.js';

/** A server that has not replied to anything for this long is left when a request times out. */
const MAX_SILENCE_MS = 250;
/** A timer that fires later than this means that this process was busy or stopped. That is no silence of the server. */
const MAX_TIMER_DELAY_MS = 50;

/** Waits for replies to what was sent now. A server that has been silent since then is left. */
export async function awaitReplies<T>(
  replies: Promise<T>,
  deadline: Deadline,
  connection: HostConnection | undefined,
): Promise<T> {
  const sentAtMs = systemClock.monotonicMs();
  // They may also fail when nobody waits for them any more, or not yet.
  replies.catch(() => undefined);
  const timeoutMs = deadline.leftMs;
  if (await withTimeout(systemClock, timeoutMs, replies)) return replies;
  const waitedMs = systemClock.monotonicMs() - sentAtMs;
  const wasBusy = waitedMs > timeoutMs + MAX_TIMER_DELAY_MS;
  if (connection && !wasBusy && waitedMs > MAX_SILENCE_MS && connection.lastReadAtMs < sentAtMs)
    connection.close();
  throw new StoreTimeoutError(timeoutMs);
}

/** By default it keeps the process alive: somebody waits for what comes after it. */
export const pause = (ms: number, options: TimerOptions = { awaited: true }) =>
  new Promise<void>((resolve) => systemClock.after(ms, resolve, options));
