import {
  type AcquireRequest,
  type BatchResult,
  type LockBackend,
  type ReleaseRequest,
  type RenewRequest,
  type RequestBatch,
  MAX_HISTORY_ENTRIES,
} from '../../core/backend.js';
import type { AcquireResult, ReleaseResult, RenewResult } from '../../core/backend-results.js';
import type { ReleaseNotice } from '../../core/store-notices.js';
import type { ListRequest, ListedLock, LockPage, LockRecord } from '../../core/lock-record.js';
import { type TickState, judgeTick } from '../../core/tick.js';
import { type Clock, systemClock } from '../../core/clock.js';
import { checkKeyCursor } from '../../core/list-options.js';
import { queueMicrotask } from '../../core/real-timers.js';
import { ClaimedTicks } from './claimed-ticks.js';
import { type MemoryBackendOptions, checkMemoryOptions } from './memory-options.js';

interface LockEntry {
  readonly holder: string;
  readonly instance: string;
  readonly fencingToken: bigint;
  readonly lastToken: bigint;
  readonly sinceMs: number;
  /** On the monotonic clock. */
  readonly endsAtMs: number;
  /** The monotonic time until which a waiter for the key will have asked again. */
  readonly hasWaitersUntilMs: number;
}

/**
 * Keeps locks in this process: for tests, for development, and as the shortest complete implementation of a backend. It
 * does not exclude other processes.
 */
export class MemoryBackend implements LockBackend {
  readonly name = 'memory';
  readonly clock: Clock;
  readonly #entries = new Map<string, LockEntry>();
  readonly #ticks: ClaimedTicks;
  readonly #history = new Map<string, string[]>();
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  #lastToken = 0n;
  #sweepAtSize = 1_000;

  constructor({ clock = systemClock }: MemoryBackendOptions = {}) {
    this.clock = clock;
    this.#ticks = new ClaimedTicks(clock);
  }

  execute({ release, renew, acquire }: RequestBatch): Promise<BatchResult> {
    return Promise.resolve({
      release: release?.map((request) => this.#release(request)) ?? [],
      renew: renew?.map((request) => this.#renew(request)) ?? [],
      acquire: acquire?.map((request) => this.#acquire(request)) ?? [],
    });
  }

  inspect(key: string): Promise<LockRecord | null> {
    const entry = this.#heldEntry(key);
    return Promise.resolve(entry ? this.#recordOf(entry) : null);
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- A wrong cursor must reject, not throw.
  async list(request: ListRequest): Promise<LockPage> {
    checkKeyCursor(request);
    const { prefix, cursor = '', limit } = request;
    const keys = [...this.#entries.keys()].filter((key) => key.startsWith(prefix) && key > cursor).sort();
    const locks: ListedLock[] = [];
    for (const key of keys) {
      const entry = this.#heldEntry(key);
      const last = locks.at(-1);
      if (entry && last && locks.length === limit) return { locks, cursor: last.key };
      if (entry) locks.push({ key, ...this.#recordOf(entry) });
    }
    return { locks };
  }

  forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    const entry = this.#heldEntry(key);
    const isThatGrant =
      entry !== undefined && entry.fencingToken <= fencingToken && fencingToken <= entry.lastToken;
    if (isThatGrant) this.#removeLock(key);
    return Promise.resolve(isThatGrant);
  }

  readTicks(key: string): Promise<TickState> {
    return Promise.resolve(this.#tickState(key));
  }

  registerTicks(key: string): Promise<TickState> {
    const state = this.#tickState(key);
    if (!state.claimed) this.#ticks.register(key, state.nowMs);
    return Promise.resolve(state);
  }

  setPaused(key: string, isPaused: boolean): Promise<void> {
    const state = this.#tickState(key);
    if ((state.isPaused ?? false) !== isPaused) this.#ticks.setPaused(key, isPaused, state);
    return Promise.resolve();
  }

  appendHistory(key: string, entry: string): Promise<void> {
    this.#history.set(key, [entry, ...(this.#history.get(key) ?? [])].slice(0, MAX_HISTORY_ENTRIES));
    return Promise.resolve();
  }

  readHistory(key: string): Promise<readonly string[]> {
    return Promise.resolve(this.#history.get(key) ?? []);
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The number of locks, including expired ones that are not swept yet. */
  get size(): number {
    return this.#entries.size;
  }

  /** Deletes all locks, ticks and history entries, like the restart of a store without persistence. */
  forgetAll(): void {
    this.#entries.clear();
    this.#ticks.clear();
    this.#history.clear();
  }

  /** Does nothing: another module may use this backend. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  #acquire(request: AcquireRequest): AcquireResult {
    const { key, holder, instance, leaseMs, tokenCount = 1, retryWithinMs = 0, tick } = request;
    const present = this.#heldEntry(key);
    if (present?.holder === holder) {
      const endsAtMs = Math.max(present.endsAtMs, this.clock.monotonicMs() + leaseMs);
      this.#entries.set(key, { ...present, endsAtMs });
      return grantedResult(present.fencingToken, tick && this.#ticks.get(key)?.attempt);
    }
    const verdict = tick && judgeTick(tick, this.#tickState(key));
    if (verdict && verdict.kind !== 'grant') return verdict;
    if (present) {
      const hasWaitersUntilMs = this.clock.monotonicMs() + retryWithinMs;
      if (retryWithinMs > 0) this.#entries.set(key, { ...present, hasWaitersUntilMs });
      return { kind: 'taken', remainingMs: this.#remainingMs(present) };
    }
    if (tick && verdict) this.#ticks.claim(key, tick, verdict.attempt);
    const fencingToken = this.#nextToken();
    this.#lastToken = fencingToken + BigInt(tokenCount - 1);
    const times = { sinceMs: this.clock.wallMs(), endsAtMs: this.clock.monotonicMs() + leaseMs };
    const tokens = { fencingToken, lastToken: this.#lastToken };
    this.#entries.set(key, { holder, instance, ...tokens, ...times, hasWaitersUntilMs: 0 });
    this.#sweep();
    return grantedResult(fencingToken, verdict?.attempt);
  }

  #tickState(key: string): TickState {
    const entry = this.#entries.get(key);
    const heldForMs = entry ? this.#remainingMs(entry) : 0;
    const nowMs = this.clock.wallMs();
    const tick = this.#ticks.get(key);
    const claimed = tick && { tickMs: tick.tickMs, attempt: tick.attempt };
    const aliveUntilMs = entry ? nowMs + heldForMs : (tick?.aliveUntilMs ?? 0);
    return { nowMs, claimed, heldForMs, aliveUntilMs, ...(tick?.isPaused && { isPaused: true }) };
  }

  #renew({ key, holder, leaseMs, moreTokens }: RenewRequest): RenewResult {
    const present = this.#heldEntry(key);
    if (present?.holder !== holder) return { kind: 'lost' };
    const endsAtMs = Math.max(present.endsAtMs, this.clock.monotonicMs() + leaseMs);
    this.#ticks.onRenewed(key, endsAtMs - present.endsAtMs);
    if (!moreTokens || present.hasWaitersUntilMs > this.clock.monotonicMs()) {
      this.#entries.set(key, { ...present, endsAtMs });
      return { kind: 'renewed' };
    }
    const fencingToken = this.#nextToken();
    this.#lastToken = fencingToken + BigInt(moreTokens - 1);
    this.#entries.set(key, { ...present, endsAtMs, lastToken: this.#lastToken });
    return { kind: 'renewed', fencingToken };
  }

  #release({ key, holder, hasEnded, usedOneToken }: ReleaseRequest): ReleaseResult {
    // The end of a run also counts after its lease, as long as the key was not granted again.
    const entry = hasEnded ? this.#entries.get(key) : this.#heldEntry(key);
    if (entry?.holder !== holder) return { kind: 'gone' };
    if (hasEnded) this.#ticks.onEnded(key);
    // Otherwise the tokens of a busy process would run ahead of the clock, and be too small after a restart.
    if (usedOneToken && this.#lastToken === entry.lastToken) this.#lastToken = entry.fencingToken;
    this.#removeLock(key);
    return { kind: 'released' };
  }

  #removeLock(key: string): void {
    this.#entries.delete(key);
    this.#ticks.onReleased(key);
    for (const listener of this.#listeners) queueMicrotask(() => listener({ key }));
  }

  #heldEntry(key: string): LockEntry | undefined {
    const entry = this.#entries.get(key);
    return entry && this.#remainingMs(entry) > 0 ? entry : undefined;
  }

  #recordOf(entry: LockEntry): LockRecord {
    const { holder, instance, fencingToken, sinceMs } = entry;
    return { holder, instance, fencingToken, sinceMs, remainingMs: this.#remainingMs(entry) };
  }

  #remainingMs({ endsAtMs }: LockEntry): number {
    return endsAtMs - this.clock.monotonicMs();
  }

  /** One counter for all keys, so that a released key needs no memory. */
  #nextToken(): bigint {
    const storeTimeUs = BigInt(Math.floor(this.clock.wallMs() * 1_000));
    return this.#lastToken + 1n > storeTimeUs ? this.#lastToken + 1n : storeTimeUs;
  }

  /**
   * Deletes expired leases each time they may be half of all. It keeps those of job runs, whose end may still be
   * reported.
   */
  #sweep(): void {
    if (this.#entries.size < this.#sweepAtSize) return;
    for (const [key, entry] of this.#entries) {
      const isOver = this.#remainingMs(entry) <= 0;
      if (isOver && !this.#ticks.get(key)) this.#entries.delete(key);
    }
    this.#sweepAtSize = Math.max(1_000, this.#entries.size * 2);
  }
}

const grantedResult = (fencingToken: bigint, attempt: number | undefined): AcquireResult => ({
  kind: 'granted',
  fencingToken,
  ...(attempt !== undefined && { attempt }),
});

/**
 * Keeps locks in this process. Does not exclude other processes.
 *
 * @throws LockConfigError for an unknown option
 */
export function memoryBackend(options: MemoryBackendOptions = {}): MemoryBackend {
  checkMemoryOptions(options);
  return new MemoryBackend(options);
}
