import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  AcquireAnswer,
  AcquireRequest,
  Claim,
  LockBackend,
  LockRecord,
  ReleaseAnswer,
  RenewAnswer,
  TickClaim,
} from '../../core/backend.js';

/** What a backend's author supplies so that the laws can be checked. */
export interface LawBench {
  /** A backend on the one store of this bench, as another process would open it. The law closes it. */
  open(): LockBackend;
  /** Makes the store forget everything about the key, as a restart without persistence or an eviction does. */
  forget(key: string): Promise<void>;
}

/** One promise of `LockBackend`. There is no way to switch one off: a backend keeps all of them or is none. */
export interface Law {
  readonly title: string;
  /** Rejects with an `AssertionError` if the backend breaks the promise. */
  check(bench: LawBench): Promise<void>;
}

/** What a law works with: backends that are closed afterwards, a key of its own, and one question at a time. */
interface Court {
  readonly key: string;
  readonly open: () => Asking;
  readonly forget: (key: string) => Promise<void>;
}

/** Leases in laws: long enough for a slow store's round trip, short enough to wait for their end. */
export const LEASE_MS = 400;
export const LONG_LEASE_MS = 30_000;
export const LIMIT_MS = 10_000;

export const law = (title: string, hold: (court: Court) => Promise<void>): Law => ({
  title,
  async check(bench) {
    const opened: LockBackend[] = [];
    const open = () => {
      const backend = bench.open();
      opened.push(backend);
      return new Asking(backend);
    };
    try {
      await hold({ key: `law:${randomUUID()}`, open, forget: (key) => bench.forget(key) });
    } finally {
      await Promise.all(opened.map((backend) => backend.close()));
    }
  },
});

interface Wish {
  readonly leaseMs?: number;
  readonly instance?: string;
  readonly tokenCount?: number;
  readonly againWithinMs?: number;
  readonly tick?: TickClaim;
}

/** Asks a backend one thing at a time, and takes no doubt for an answer. */
export class Asking {
  readonly backend: LockBackend;

  constructor(backend: LockBackend) {
    this.backend = backend;
  }

  async acquire(claim: Claim, wish: Wish = {}): Promise<AcquireAnswer> {
    const { acquire } = await this.backend.exchange({ acquire: [acquisition(claim, wish)] }, LIMIT_MS);
    return known(acquire[0]);
  }

  async renew(claim: Claim, leaseMs = LEASE_MS): Promise<RenewAnswer['kind']> {
    const { renew } = await this.backend.exchange({ renew: [{ ...claim, leaseMs }] }, LIMIT_MS);
    return known(renew[0]).kind;
  }

  async release(claim: Claim): Promise<ReleaseAnswer['kind']> {
    const { release } = await this.backend.exchange({ release: [claim] }, LIMIT_MS);
    return known(release[0]).kind;
  }

  inspect(key: string): Promise<LockRecord | null> {
    return this.backend.inspect(key, LIMIT_MS);
  }

  forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    return this.backend.forceRelease(key, fencingToken, LIMIT_MS);
  }

  /** Acquires what must be free; answers its fencing token. */
  async take(claim: Claim, wish?: Wish): Promise<bigint> {
    const answer = await this.acquire(claim, wish);
    assert(answer.kind === 'granted', `expected a free key to be granted, got '${answer.kind}'`);
    return answer.fencingToken;
  }

  /** Acquires what must be held by somebody else; answers what is left of that lease. */
  async findTaken(claim: Claim, wish?: Wish): Promise<number> {
    const answer = await this.acquire(claim, wish);
    assert(answer.kind === 'taken', `expected the key to be taken, got the answer '${answer.kind}'`);
    return answer.remainingMs;
  }

  /** Asks until the lease of whoever holds the key is over; answers the fencing token of the grant. */
  async takeWhenOver(claim: Claim, wish: Wish = {}): Promise<bigint> {
    for (;;) {
      const answer = await this.acquire(claim, wish);
      if (answer.kind === 'granted') return answer.fencingToken;
      // The only way to see a lease end by the store's clock is to let that time pass.
      await sleep(answer.kind === 'taken' ? Math.min(Math.max(answer.remainingMs, 5), 50) : 5);
    }
  }
}

export const acquisition = (
  { key, holder }: Claim,
  { leaseMs = LONG_LEASE_MS, instance = 'a law', ...rest }: Wish = {},
): AcquireRequest => ({ key, holder, leaseMs, instance, ...rest });

/** A claim of somebody new. */
export const somebody = (key: string): Claim => ({ key, holder: randomUUID() });

/** The answer, where there is one: laws are checked on a store that is up. */
export function known<Answer extends { kind: string }>(
  answer: Answer | undefined,
): Exclude<Answer, { kind: 'unknown' }> {
  assert(answer, 'expected an answer to each request, got fewer');
  if (answer.kind === 'unknown') throw (answer as unknown as { cause: unknown }).cause;
  return answer as Exclude<Answer, { kind: 'unknown' }>;
}

/** The item at this place, counted around. */
export function nth<T>(items: readonly T[], index: number): T {
  const item = items[index % items.length];
  assert(item !== undefined, 'expected an item, got an empty list');
  return item;
}
