import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type Claim,
  type Freed,
  type LockBackend,
  type LockRecord,
  MOST_NOTES,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RenewRequest,
  type Requests,
  type TickClaim,
} from '../../core/backend.js';
import { type Clock, systemClock } from '../../core/clock.js';
import { queueMicrotask } from '../../core/real-time.js';
import { type ClaimedTick, type TickVerdict, judgeTick } from '../../core/tick-verdict.js';

export interface MemoryBackendOptions {
  /**
   * Where time comes from, for the backend and for the locks on it; a `SettableClock` in tests.
   *
   * @default the clock of the machine
   */
  clock?: Clock;
}

interface Entry {
  readonly holder: string;
  readonly instance: string;
  readonly fencingToken: bigint;
  readonly lastToken: bigint;
  readonly sinceMs: number;
  /** On the monotonic clock. */
  readonly endsAtMs: number;
}

interface Remembered extends ClaimedTick {
  /** On the monotonic clock. */
  readonly forgetAtMs: number;
  /** When its last run was given back. */
  readonly aliveUntilMs?: number;
}

/**
 * Keeps locks in this process: for tests, for development, and as the shortest complete answer to what a backend is.
 * It guards nothing against other processes.
 */
export class MemoryBackend implements LockBackend {
  readonly name = 'memory';
  readonly clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #ticks = new Map<string, Remembered>();
  readonly #notes = new Map<string, string[]>();
  /** Until when, on the monotonic clock, somebody waits for a held key. */
  readonly #waitedForUntilMs = new Map<string, number>();
  readonly #listeners = new Set<(freed: Freed) => void>();
  #lastToken = 0n;
  #sweepAtSize = 1_000;
  #sweepTicksAtSize = 1_000;

  constructor({ clock = systemClock }: MemoryBackendOptions = {}) {
    this.clock = clock;
  }

  exchange({ release = [], renew = [], acquire = [] }: Requests): Promise<Answers> {
    return Promise.resolve({
      release: release.map((request) => this.#release(request)),
      renew: renew.map((request) => this.#renew(request)),
      acquire: acquire.map((request) => this.#acquire(request)),
    });
  }

  inspect(key: string): Promise<LockRecord | null> {
    const entry = this.#heldEntry(key);
    if (!entry) return Promise.resolve(null);
    const { holder, instance, fencingToken, sinceMs } = entry;
    return Promise.resolve({
      holder,
      instance,
      fencingToken,
      sinceMs,
      remainingMs: this.#remainingMs(entry),
    });
  }

  forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    const entry = this.#heldEntry(key);
    const isThatGrant =
      entry !== undefined && entry.fencingToken <= fencingToken && fencingToken <= entry.lastToken;
    if (isThatGrant) this.#free(key);
    return Promise.resolve(isThatGrant);
  }

  note(key: string, text: string): Promise<void> {
    this.#notes.set(key, [text, ...(this.#notes.get(key) ?? [])].slice(0, MOST_NOTES));
    return Promise.resolve();
  }

  notes(key: string): Promise<readonly string[]> {
    return Promise.resolve(this.#notes.get(key) ?? []);
  }

  onFreed(listener: (freed: Freed) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** How many locks it keeps, lapsed ones included until they are swept. */
  get size(): number {
    return this.#entries.size;
  }

  /** Forgets every lock, tick and note, as a store without persistence does when it restarts. */
  forgetAll(): void {
    this.#entries.clear();
    this.#ticks.clear();
    this.#notes.clear();
  }

  /** Opens nothing, so closes nothing: another module may be using it. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  #acquire(request: AcquireRequest): AcquireAnswer {
    const { key, holder, instance, leaseMs, tokenCount = 1, againWithinMs = 0, tick } = request;
    const present = this.#heldEntry(key);
    if (present?.holder === holder) {
      const endsAtMs = Math.max(present.endsAtMs, this.clock.monotonicMs() + leaseMs);
      this.#entries.set(key, { ...present, endsAtMs });
      return granted(present.fencingToken, tick && this.#ticks.get(key)?.attempt);
    }
    const verdict = tick && this.#judge(key, tick);
    if (verdict && verdict.kind !== 'grant') return this.#refused(key, verdict);
    if (present) {
      if (againWithinMs > 0) this.#waitedForUntilMs.set(key, this.clock.monotonicMs() + againWithinMs);
      return { kind: 'taken', remainingMs: this.#remainingMs(present) };
    }
    this.#waitedForUntilMs.delete(key);
    if (tick && verdict) this.#remember(key, tick, verdict.attempt);
    const fencingToken = this.#nextToken();
    this.#lastToken = fencingToken + BigInt(tokenCount - 1);
    this.#entries.set(key, {
      holder,
      instance,
      fencingToken,
      lastToken: this.#lastToken,
      sinceMs: this.clock.wallMs(),
      endsAtMs: this.clock.monotonicMs() + leaseMs,
    });
    this.#sweep();
    return granted(fencingToken, verdict?.attempt);
  }

  #judge(key: string, tick: TickClaim): TickVerdict {
    const entry = this.#entries.get(key);
    const heldForMs = entry ? this.#remainingMs(entry) : 0;
    const nowMs = this.clock.wallMs();
    const claimed = this.#ticks.get(key);
    const aliveUntilMs = entry ? nowMs + heldForMs : (claimed?.aliveUntilMs ?? 0);
    return judgeTick(tick, { claimed, heldForMs, aliveUntilMs, nowMs });
  }

  #refused(key: string, verdict: Exclude<TickVerdict, { kind: 'grant' }>): AcquireAnswer {
    if (verdict.kind !== 'register') return verdict;
    const tickMs = Math.floor(this.clock.wallMs());
    this.#ticks.set(key, { tickMs, attempt: 0, forgetAtMs: Infinity });
    return { kind: 'refused', reason: 'registered', aheadMs: verdict.aheadMs };
  }

  #remember(key: string, { tickMs, forget }: TickClaim, attempt: number): void {
    const nowMs = this.clock.monotonicMs();
    this.#ticks.set(key, { tickMs, attempt, forgetAtMs: nowMs + (forget?.afterMs ?? Infinity) });
    if (this.#ticks.size < this.#sweepTicksAtSize) return;
    for (const [other, { forgetAtMs }] of this.#ticks) if (forgetAtMs < nowMs) this.#ticks.delete(other);
    this.#sweepTicksAtSize = Math.max(1_000, this.#ticks.size * 2);
  }

  #renew({ key, holder, leaseMs, moreTokens }: RenewRequest): RenewAnswer {
    const present = this.#heldEntry(key);
    if (present?.holder !== holder) return { kind: 'lost' };
    const endsAtMs = Math.max(present.endsAtMs, this.clock.monotonicMs() + leaseMs);
    if (!moreTokens || (this.#waitedForUntilMs.get(key) ?? 0) > this.clock.monotonicMs()) {
      this.#entries.set(key, { ...present, endsAtMs });
      return { kind: 'renewed' };
    }
    const fencingToken = this.#nextToken();
    this.#lastToken = fencingToken + BigInt(moreTokens - 1);
    this.#entries.set(key, { ...present, endsAtMs, lastToken: this.#lastToken });
    return { kind: 'renewed', fencingToken };
  }

  #release({ key, holder, hasEnded }: ReleaseRequest): ReleaseAnswer {
    if (hasEnded) return this.#finish({ key, holder });
    if (this.#heldEntry(key)?.holder !== holder) return { kind: 'gone' };
    this.#free(key);
    return { kind: 'released' };
  }

  /** It counts also after the lease, as long as nobody has come since. */
  #finish({ key, holder }: Claim): ReleaseAnswer {
    if (this.#entries.get(key)?.holder !== holder) return { kind: 'gone' };
    const tick = this.#ticks.get(key);
    if (tick) this.#ticks.set(key, { ...tick, attempt: 0 });
    this.#free(key);
    return { kind: 'released' };
  }

  #free(key: string): void {
    this.#entries.delete(key);
    const tick = this.#ticks.get(key);
    if (tick) this.#ticks.set(key, { ...tick, aliveUntilMs: this.clock.wallMs() });
    this.#waitedForUntilMs.delete(key);
    for (const listener of this.#listeners) queueMicrotask(() => listener({ key }));
  }

  #heldEntry(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    return entry && this.#remainingMs(entry) > 0 ? entry : undefined;
  }

  #remainingMs({ endsAtMs }: Entry): number {
    return endsAtMs - this.clock.monotonicMs();
  }

  /** One counter for all keys, so that a freed key leaves nothing behind. */
  #nextToken(): bigint {
    const storeTimeUs = BigInt(Math.floor(this.clock.wallMs() * 1_000));
    return this.#lastToken + 1n > storeTimeUs ? this.#lastToken + 1n : storeTimeUs;
  }

  /** Forgets leases that ran out, each time they may have become half of all. Those of runs may still be ended. */
  #sweep(): void {
    if (this.#entries.size < this.#sweepAtSize) return;
    for (const [key, entry] of this.#entries) {
      const isOver = this.#remainingMs(entry) <= 0;
      if (isOver && !this.#ticks.has(key)) this.#entries.delete(key);
    }
    this.#sweepAtSize = Math.max(1_000, this.#entries.size * 2);
  }
}

const granted = (fencingToken: bigint, attempt: number | undefined): AcquireAnswer => ({
  ...{ kind: 'granted', fencingToken },
  ...(attempt !== undefined && { attempt }),
});

/** Keeps locks in this process. Guards nothing against other processes. */
export const memoryBackend = (options?: MemoryBackendOptions): MemoryBackend => new MemoryBackend(options);
