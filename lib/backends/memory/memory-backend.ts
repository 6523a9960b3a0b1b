import type {
  AcquireAnswer,
  AcquireRequest,
  Answers,
  Claim,
  Freed,
  LockBackend,
  LockRecord,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  Requests,
} from '../../core/backend.js';
import { type Clock, systemClock } from '../../core/clock.js';
import { tickRefusal } from '../../core/tick-refusal.js';

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

/**
 * Keeps locks in this process: for tests, for development, and as the shortest complete answer to what a backend is.
 * It guards nothing against other processes.
 */
export class MemoryBackend implements LockBackend {
  readonly name = 'memory';
  readonly clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #claimedTicks = new Map<string, number>();
  readonly #listeners = new Set<(freed: Freed) => void>();
  #lastToken = 0n;
  #sweepAtSize = 1_000;

  constructor({ clock = systemClock }: MemoryBackendOptions = {}) {
    this.clock = clock;
  }

  exchange({ release = [], renew = [], acquire = [] }: Requests): Promise<Answers> {
    return Promise.resolve({
      release: release.map((claim) => this.#release(claim)),
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

  onFreed(listener: (freed: Freed) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** How many locks it keeps, lapsed ones included until they are swept. */
  get size(): number {
    return this.#entries.size;
  }

  /** Forgets every lock and tick, as a store without persistence does when it restarts. */
  forgetAll(): void {
    this.#entries.clear();
    this.#claimedTicks.clear();
  }

  /** Opens nothing, so closes nothing: another module may be using it. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  #acquire(request: AcquireRequest): AcquireAnswer {
    const { key, holder, instance, leaseMs, tokenCount = 1, tick } = request;
    const present = this.#heldEntry(key);
    if (present?.holder === holder) {
      this.#entries.set(key, { ...present, endsAtMs: this.clock.monotonicMs() + leaseMs });
      return { kind: 'granted', fencingToken: present.fencingToken };
    }
    const refusal =
      tick && tickRefusal(tick, { claimedMs: this.#claimedTicks.get(key), nowMs: this.clock.wallMs() });
    if (refusal) return refusal;
    if (present) return { kind: 'taken', remainingMs: this.#remainingMs(present) };
    if (tick) this.#claimedTicks.set(key, tick.tickMs);
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
    return { kind: 'granted', fencingToken };
  }

  #renew({ key, holder, leaseMs, moreTokens }: RenewRequest): RenewAnswer {
    const present = this.#heldEntry(key);
    if (present?.holder !== holder) return { kind: 'lost' };
    const endsAtMs = Math.max(present.endsAtMs, this.clock.monotonicMs() + leaseMs);
    if (!moreTokens) {
      this.#entries.set(key, { ...present, endsAtMs });
      return { kind: 'renewed' };
    }
    const fencingToken = this.#nextToken();
    this.#lastToken = fencingToken + BigInt(moreTokens - 1);
    this.#entries.set(key, { ...present, endsAtMs, lastToken: this.#lastToken });
    return { kind: 'renewed', fencingToken };
  }

  #release({ key, holder }: Claim): ReleaseAnswer {
    if (this.#heldEntry(key)?.holder !== holder) return { kind: 'gone' };
    this.#free(key);
    return { kind: 'released' };
  }

  #free(key: string): void {
    this.#entries.delete(key);
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

  /** Forgets leases that ran out, each time they may have become half of all. */
  #sweep(): void {
    if (this.#entries.size < this.#sweepAtSize) return;
    for (const [key, entry] of this.#entries) {
      if (this.#remainingMs(entry) <= 0) this.#entries.delete(key);
    }
    this.#sweepAtSize = Math.max(1_000, this.#entries.size * 2);
  }
}

/** Keeps locks in this process. Guards nothing against other processes. */
export const memoryBackend = (options?: MemoryBackendOptions): MemoryBackend => new MemoryBackend(options);
