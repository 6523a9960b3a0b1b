import type { Clock } from '../../core/clock.js';
import { type ClaimedTick, type TickClaim, type TickState, resumedTick } from '../../core/tick.js';

interface TickEntry extends ClaimedTick {
  /** On the monotonic clock. */
  readonly cleanUpAtMs: number;
  /** The time, by the wall clock, at which its last run was released. */
  readonly aliveUntilMs?: number;
  readonly isPaused?: boolean;
}

/** The newest claimed tick of each job, which outlives the lock of its run. */
export class ClaimedTicks {
  readonly #clock: Clock;
  readonly #entries = new Map<string, TickEntry>();
  #sweepAtSize = 1_000;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get(key: string): TickEntry | undefined {
    return this.#entries.get(key);
  }

  /** Remembers now as the newest tick, so that a tick before it counts as claimed. */
  register(key: string, nowMs: number): void {
    this.#entries.set(key, { tickMs: Math.floor(nowMs), attempt: 0, cleanUpAtMs: Infinity });
  }

  setPaused(key: string, isPaused: boolean, state: TickState): void {
    const newest = isPaused && state.claimed ? state.claimed : resumedTick(state);
    this.#entries.set(key, { cleanUpAtMs: Infinity, ...this.#entries.get(key), ...newest, isPaused });
  }

  claim(key: string, { tickMs, cleanUp }: TickClaim, attempt: number): void {
    const nowMs = this.#clock.monotonicMs();
    this.#entries.set(key, { tickMs, attempt, cleanUpAtMs: nowMs + (cleanUp?.afterMs ?? Infinity) });
    if (this.#entries.size < this.#sweepAtSize) return;
    for (const [other, { cleanUpAtMs }] of this.#entries)
      if (cleanUpAtMs < nowMs) this.#entries.delete(other);
    this.#sweepAtSize = Math.max(1_000, this.#entries.size * 2);
  }

  /** The lease of the run ends later by so much, and so does the time in which the run may be retried if it dies. */
  onRenewed(key: string, byMs: number): void {
    const entry = this.#entries.get(key);
    if (entry) this.#entries.set(key, { ...entry, cleanUpAtMs: entry.cleanUpAtMs + byMs });
  }

  /** The run of the tick has ended, so no other run takes it over. */
  onEnded(key: string): void {
    this.#update(key, { attempt: 0 });
  }

  /** The lock of the run was released. */
  onReleased(key: string): void {
    this.#update(key, { aliveUntilMs: this.#clock.wallMs() });
  }

  clear(): void {
    this.#entries.clear();
  }

  #update(key: string, change: Partial<TickEntry>): void {
    const entry = this.#entries.get(key);
    if (entry) this.#entries.set(key, { ...entry, ...change });
  }
}
