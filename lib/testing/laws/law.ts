import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AcquireRequest, AcquisitionId, LockBackend } from '../../core/backend.js';
import type { AcquireResult, ReleaseResult, RenewResult } from '../../core/backend-results.js';
import { systemClock } from '../../core/clock.js';
import type { LockRecord } from '../../core/lock-record.js';
import { StoreTimeoutError } from '../../core/requests/store-timeout.js';
import type { TickClaim, TickState } from '../../core/tick.js';

/** What the author of a backend provides so that the laws can be checked. */
export interface LawBench {
  /** Returns a backend on the store of this bench, as if in another process. The law closes it. */
  open(): LockBackend;
  /** Deletes everything that the store knows about the key, like a restart without persistence or an eviction. */
  forget(key: string): Promise<void>;
}

/**
 * A law is a test that every backend must pass: one promise of `LockBackend`. Laws cannot be turned off: a backend must
 * pass all of them.
 */
export interface Law {
  readonly title: string;
  /** @throws AssertionError if the backend breaks the promise */
  check(bench: LawBench): Promise<void>;
}

/** What a law works with: its own key, leases that the store can keep, and backends that are closed afterwards. */
export interface LawSetup {
  readonly key: string;
  /** A lease that is long enough for a round trip to a slow store and short enough to wait for its end. */
  readonly leaseMs: number;
  /** A lease to wait for after another request has reached the store in it, also on a busy machine. */
  readonly patientLeaseMs: number;
  /** How many fencing tokens a grant can reserve. */
  readonly tokenCount: number;
  readonly open: () => BackendClient;
  readonly forget: (key: string) => Promise<void>;
}

const LEASE_MS = 400;
const PATIENT_LEASE_MS = 2_000;
/** So many that a clock in µs does not pass them by between two requests. */
const TOKEN_COUNT = 1_000_000;
export const LONG_LEASE_MS = 30_000;
/** No law waits for it to pass. A busy machine has needed more than 10 s for a batch of a thousand locks. */
export const TIMEOUT_MS = 30_000;
/** For how long a store may be too slow for the short leases of the laws. */
const MAX_STANDSTILL_MS = 60_000;
const HOUR_MS = 60 * 60 * 1_000;

const shortLeaseMs = ({ minLeaseMs = 0 }: LockBackend) => Math.max(LEASE_MS, minLeaseMs);

export const law = (title: string, verify: (setup: LawSetup) => Promise<void>): Law => ({
  title,
  async check(bench) {
    const first = bench.open();
    const opened: LockBackend[] = [];
    const open = () => {
      const backend = opened.length === 0 ? first : bench.open();
      opened.push(backend);
      return new BackendClient(backend);
    };
    const { minLeaseMs = 0, maxTokenCount = Infinity } = first;
    try {
      await verify({
        key: `law:${randomUUID()}`,
        leaseMs: shortLeaseMs(first),
        patientLeaseMs: Math.max(PATIENT_LEASE_MS, minLeaseMs),
        tokenCount: Math.min(TOKEN_COUNT, maxTokenCount),
        open,
        forget: (key) => bench.forget(key),
      });
    } finally {
      await Promise.all(opened.map((backend) => backend.close()));
    }
  },
});

interface AcquireSettings {
  readonly leaseMs?: number;
  readonly instance?: string;
  readonly tokenCount?: number;
  readonly retryWithinMs?: number;
  readonly tick?: TickClaim;
}

/** Sends single requests to a backend. Throws the cause of an unknown result. */
export class BackendClient {
  readonly backend: LockBackend;

  /** A short lease that the store can keep. */
  readonly leaseMs: number;

  constructor(backend: LockBackend) {
    this.backend = backend;
    this.leaseMs = shortLeaseMs(backend);
  }

  /** Repeats the request while the store is too slow for its lease, as a caller does: a machine or its disk may stand still. */
  async acquire(acquisition: AcquisitionId, options: AcquireSettings = {}): Promise<AcquireResult> {
    const request = createAcquireRequest(acquisition, options);
    const untilMs = systemClock.monotonicMs() + MAX_STANDSTILL_MS;
    for (;;) {
      const { acquire } = await this.backend.execute({ acquire: [request] }, TIMEOUT_MS);
      const [result] = acquire;
      const isTooSlow = result?.kind === 'unknown' && result.cause instanceof StoreTimeoutError;
      if (!isTooSlow || systemClock.monotonicMs() > untilMs) return requireKnown(result);
    }
  }

  async renew(acquisition: AcquisitionId, leaseMs = this.leaseMs): Promise<RenewResult['kind']> {
    const { renew } = await this.backend.execute({ renew: [{ ...acquisition, leaseMs }] }, TIMEOUT_MS);
    return requireKnown(renew[0]).kind;
  }

  async release(acquisition: AcquisitionId): Promise<ReleaseResult['kind']> {
    const { release } = await this.backend.execute({ release: [acquisition] }, TIMEOUT_MS);
    return requireKnown(release[0]).kind;
  }

  /** Releases the lock of a run that has ended. */
  async endRun(run: AcquisitionId): Promise<ReleaseResult['kind']> {
    const { release } = await this.backend.execute({ release: [{ ...run, hasEnded: true }] }, TIMEOUT_MS);
    return requireKnown(release[0]).kind;
  }

  /** Waits until the lease of the holder has expired. */
  async waitUntilFree(key: string): Promise<void> {
    // The only way to see a lease end by the store's clock is to let that time pass.
    while (await this.inspect(key)) await sleep(10);
  }

  inspect(key: string): Promise<LockRecord | null> {
    return this.backend.inspect(key, TIMEOUT_MS);
  }

  readTicks(key: string): Promise<TickState> {
    return this.backend.readTicks(key, TIMEOUT_MS);
  }

  registerTicks(key: string): Promise<TickState> {
    return this.backend.registerTicks(key, TIMEOUT_MS);
  }

  setPaused(key: string, isPaused: boolean): Promise<void> {
    return this.backend.setPaused(key, isPaused, TIMEOUT_MS);
  }

  forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    return this.backend.forceRelease(key, fencingToken, TIMEOUT_MS);
  }

  /** Acquires a key that must be free. Returns the fencing token. */
  async expectGranted(acquisition: AcquisitionId, options?: AcquireSettings): Promise<bigint> {
    const result = await this.acquire(acquisition, options);
    assert(result.kind === 'granted', `expected a free key to be granted, got '${result.kind}'`);
    return result.fencingToken;
  }

  /** Tries to acquire a key that another holder must have. Returns the rest of that lease in ms. */
  async expectTaken(acquisition: AcquisitionId, options?: AcquireSettings): Promise<number> {
    const result = await this.acquire(acquisition, options);
    assert(result.kind === 'taken', `expected the key to be taken, got '${result.kind}'`);
    return result.remainingMs;
  }

  /**
   * Tries until it sees that the lease of the holder lasts for longer than this. As long as a server of a quorum is late, other
   * processes may see an earlier end.
   */
  async expectTakenForOver(key: string, longerThanMs: number): Promise<void> {
    const untilMs = systemClock.monotonicMs() + MAX_STANDSTILL_MS;
    for (;;) {
      const remainingMs = await this.expectTaken(createAcquisitionId(key));
      if (remainingMs > longerThanMs) return;
      const text = `expected the lease to last for more than ${longerThanMs} ms, got ${remainingMs}`;
      assert(systemClock.monotonicMs() < untilMs, text);
      await sleep(10);
    }
  }

  /** Retries until the lease of the current holder has ended. Returns the fencing token of the grant. */
  async acquireOnceFree(acquisition: AcquisitionId, options: AcquireSettings = {}): Promise<bigint> {
    for (;;) {
      const result = await this.acquire(acquisition, options);
      if (result.kind === 'granted') return result.fencingToken;
      // The only way to see a lease end by the store's clock is to let that time pass.
      await sleep(result.kind === 'taken' ? Math.min(Math.max(result.remainingMs, 5), 50) : 5);
    }
  }
}

export const createAcquireRequest = (
  { key, holder }: AcquisitionId,
  { leaseMs = LONG_LEASE_MS, instance = 'a law', ...rest }: AcquireSettings = {},
): AcquireRequest => ({ key, holder, leaseMs, instance, ...rest });

/** Returns the identity of an acquisition, with a new holder. */
export const createAcquisitionId = (key: string): AcquisitionId => ({ key, holder: randomUUID() });

/** Returns a claim of a tick, which the store accepts for an hour before and after it. */
export const createTickClaim = (tickMs: number, limits: Partial<TickClaim> = {}): TickClaim => ({
  ...{ tickMs, maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS, maxAttempts: 3 },
  ...limits,
});

/** Returns a known result. Throws the cause of an unknown one, because laws are checked on a store that works. */
export function requireKnown<Result extends { kind: string }>(
  result: Result | undefined,
): Exclude<Result, { kind: 'unknown' }> {
  assert(result, 'expected a result for each request, got fewer');
  if (result.kind === 'unknown') throw (result as unknown as { cause: unknown }).cause;
  return result as Exclude<Result, { kind: 'unknown' }>;
}

/** Returns the item at this index, modulo the length. */
export function nth<T>(items: readonly T[], index: number): T {
  const item = items[index % items.length];
  assert(item !== undefined, 'expected an item, got an empty list');
  return item;
}
