import { clearTimeout, monotonicMs, setTimeout, wallMs } from './real-time.js';

/** A pending call of {@link Clock.after}. */
export interface Timer {
  cancel(): void;
}

export interface TimerOptions {
  /**
   * Keep the process alive for this timer, since somebody awaits what it brings: who stands in line, and shutdown.
   *
   * @default false
   */
  readonly awaited?: boolean;
}

/**
 * Where all time comes from, so that tests can turn it by hand.
 *
 * Clocks of two machines are never compared: expiry belongs to the store, and local deadlines are differences of
 * {@link monotonicMs}.
 */
export interface Clock {
  /** Grows at the speed of real time and never jumps. Only differences mean something. */
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
 * The monotonic clock stands still while a machine sleeps, and the store's does not. When wall clock and monotonic
 * clock disagree by more than this about the time since the last confirmation, the lease is not trusted until the store
 * confirms it.
 */
const MAX_CLOCK_DISAGREEMENT_MS = 1_000;

/** Whether both clocks tell the same about the time between two moments. */
export const clocksAgree = (earlier: Moment, later: Moment): boolean =>
  Math.abs(later.wallMs - earlier.wallMs - (later.monotonicMs - earlier.monotonicMs)) <
  MAX_CLOCK_DISAGREEMENT_MS;

/** Longer delays make Node's `setTimeout` fire at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The clock of the machine, also where fake timers have replaced the globals. */
export const systemClock: Clock = {
  monotonicMs,
  wallMs,
  after(delayMs, callback, { awaited = false } = {}) {
    const dueMs = monotonicMs() + delayMs;
    let timeout: NodeJS.Timeout;
    // Node rounds delays down, so a timer may wake a little early: look at the clock and sleep on.
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
