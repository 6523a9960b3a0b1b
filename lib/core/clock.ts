import { clearTimeout, monotonicMs, setTimeout, wallMs } from './real-timers.js';

/** A pending call of {@link Clock.after}. */
export interface Timer {
  cancel(): void;
}

export interface TimerOptions {
  /**
   * Keeps the process alive until the timer fires, because a caller awaits it: a waiter or the shutdown.
   *
   * @default false
   */
  readonly awaited?: boolean;
}

/**
 * All time of the library comes from a clock, so that tests can control it.
 *
 * Clocks of two machines are never compared: the store decides when a lease expires, and local deadlines are
 * differences of {@link monotonicMs}.
 */
export interface Clock {
  /** Grows at the speed of real time and never jumps. Only differences between two values have a meaning. */
  monotonicMs(): number;
  /** The wall clock, in UTC milliseconds. May jump. */
  wallMs(): number;
  /** Calls back once, never earlier than `delayMs` from now. */
  after(delayMs: number, callback: () => void, options?: TimerOptions): Timer;
}

/** One moment on both clocks of a process. */
export interface Moment {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export const momentOf = (clock: Clock): Moment => ({
  monotonicMs: clock.monotonicMs(),
  wallMs: clock.wallMs(),
});

/**
 * The monotonic clock stops while a machine sleeps; the store's clock does not. If the wall clock and the monotonic
 * clock disagree by this much about the time since the last confirmation, the lease is not valid until the store
 * confirms it.
 */
const MAX_CLOCK_DISAGREEMENT_MS = 1_000;

/** Whether both clocks measured about the same time between two moments. */
export const clocksAgree = (earlier: Moment, later: Moment): boolean =>
  Math.abs(later.wallMs - earlier.wallMs - (later.monotonicMs - earlier.monotonicMs)) <
  MAX_CLOCK_DISAGREEMENT_MS;

/** Longer delays make Node's `setTimeout` fire at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The clock of the machine, also when fake timers have replaced the globals. */
export const systemClock: Clock = {
  monotonicMs,
  wallMs,
  after(delayMs, callback, { awaited = false } = {}) {
    const dueMs = monotonicMs() + delayMs;
    let timeout: NodeJS.Timeout;
    // Node rounds delays down, so a timer may fire a little early. Then sleep for the rest.
    const sleep = () => {
      const leftMs = Math.min(Math.ceil(dueMs - monotonicMs()), MAX_TIMEOUT_MS);
      timeout = setTimeout(wake, Math.max(leftMs, 0));
      if (!awaited) timeout.unref();
    };
    const wake = () => {
      if (monotonicMs() < dueMs) sleep();
      else callback();
    };
    sleep();
    return { cancel: () => clearTimeout(timeout) };
  },
};

/** Resolves after `delayMs`, or earlier when the signal aborts. Never rejects. */
export async function sleep(
  clock: Clock,
  delayMs: number,
  signal: AbortSignal,
  options?: TimerOptions,
): Promise<void> {
  if (signal.aborted || delayMs <= 0) return;
  await new Promise<void>((resolve) => {
    const wake = () => {
      timer.cancel();
      signal.removeEventListener('abort', wake);
      resolve();
    };
    const timer = clock.after(delayMs, wake, options);
    signal.addEventListener('abort', wake);
  });
}
