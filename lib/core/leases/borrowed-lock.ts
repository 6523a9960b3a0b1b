import { LockConfigError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { linkViewToLease } from '../open-transactions.js';
import type { Lease } from './lease.js';

/** The lock that the work of a job run or a term receives. The run or the term releases it, not the work. */
export class BorrowedLock extends PrintableLock implements Lock {
  readonly #lease: Lease;

  constructor(lease: Lease) {
    super();
    this.#lease = lease;
    linkViewToLease(this, lease);
  }

  get key(): string {
    return this.#lease.key;
  }

  get fencingToken(): bigint {
    return this.#lease.fencingToken;
  }

  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  isValid(): boolean {
    return this.#lease.isValid();
  }

  remainingMs(): number {
    return this.#lease.remainingMs();
  }

  throwIfLost(): void {
    this.#lease.throwIfLost();
  }

  extend(leaseMs: number): Promise<void> {
    return this.#lease.extend(leaseMs);
  }

  release(): Promise<boolean> {
    return Promise.reject(cannotReleaseError(this.#lease));
  }

  /** Releases nothing and does not reject: an error here would hide how the work ended. */
  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

const cannotReleaseError = ({ key, purpose }: Lease) =>
  new LockConfigError(
    purpose === 'term'
      ? `Expected the election to release the lock of its term, got release() of the leadership "${key}". It is released ` +
          `when the work of the term has ended. To let another process lead, call resign() of the candidate.`
      : `Expected the job to release the lock of its run, got release() in a run of "${key}". It is released when the ` +
          `method has ended. To end the run, return from the method.`,
    { key },
  );
