import type { Clock, Timer } from '../core/clock.js';
import { nextTurn } from '../core/real-timers.js';

interface PendingTimer {
  readonly dueMs: number;
  readonly callback: () => void;
}

/** A clock that stands still until a test advances it. */
export class SettableClock implements Clock {
  readonly #pendingTimers = new Set<PendingTimer>();
  #monotonicMs = 0;
  #wallMs: number;

  /** @param wallMs where the wall clock begins, in UTC milliseconds */
  constructor(wallMs = Date.UTC(2026, 0, 1)) {
    this.#wallMs = wallMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  wallMs(): number {
    return this.#wallMs;
  }

  after(delayMs: number, callback: () => void): Timer {
    const timer = { dueMs: this.#monotonicMs + delayMs, callback };
    this.#pendingTimers.add(timer);
    return { cancel: () => this.#pendingTimers.delete(timer) };
  }

  /** The number of armed timers. */
  get pending(): number {
    return this.#pendingTimers.size;
  }

  /** Advances both clocks. Each timer fires at its own time, and the promises that it settles run before time advances further. */
  async advance(byMs: number): Promise<void> {
    const untilMs = this.#monotonicMs + byMs;
    await nextTurn();
    for (let next = this.#nextTimerUntil(untilMs); next; next = this.#nextTimerUntil(untilMs)) {
      this.#moveTo(next.dueMs);
      this.#pendingTimers.delete(next);
      next.callback();
      // Two turns: after a timeout, `withTimeout` waits one turn for replies that have arrived.
      await nextTurn();
      await nextTurn();
    }
    this.#moveTo(untilMs);
    await nextTurn();
  }

  /** Advances both clocks like in a suspended or blocked process: no timer fires until the next `advance`. */
  freeze(byMs: number): void {
    this.#moveTo(this.#monotonicMs + byMs);
  }

  /** Sets the wall clock, as an operator or a time server does. The monotonic clock does not change. */
  setWall(wallMs: number): void {
    this.#wallMs = wallMs;
  }

  #nextTimerUntil(untilMs: number): PendingTimer | undefined {
    let next: PendingTimer | undefined;
    for (const timer of this.#pendingTimers) {
      if (timer.dueMs <= untilMs && (!next || timer.dueMs < next.dueMs)) next = timer;
    }
    return next;
  }

  #moveTo(monotonicMs: number): void {
    if (monotonicMs <= this.#monotonicMs) return;
    this.#wallMs += monotonicMs - this.#monotonicMs;
    this.#monotonicMs = monotonicMs;
  }
}
