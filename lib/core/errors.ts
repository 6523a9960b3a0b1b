import { SharedAcrossCopies } from './package-copies.js';

export type LockErrorCode =
  'LOCK_TIMEOUT' | 'LOCK_LOST' | 'LOCK_UNAVAILABLE' | 'LOCK_REENTRY' | 'LOCK_SHUTDOWN' | 'LOCK_CONFIG';

export interface LockErrorDetails {
  readonly key?: string;
  readonly cause?: unknown;
}

/** The root of every error this package throws by itself; tell them apart by class or by `code`. */
@SharedAcrossCopies('LockError')
export abstract class LockError extends Error {
  abstract readonly code: LockErrorCode;
  /** The key that was asked for, where there is one. */
  readonly key: string | undefined;

  constructor(message: string, { key, cause }: LockErrorDetails = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.key = key;
  }
}

/** Waited for `waitMs`, and somebody else still holds the lock. */
@SharedAcrossCopies('LockTimeoutError')
export class LockTimeoutError extends LockError {
  readonly code = 'LOCK_TIMEOUT';
}

/** The lock stopped being ours before it was released: somebody else may hold it by now. */
@SharedAcrossCopies('LockLostError')
export class LockLostError extends LockError {
  readonly code = 'LOCK_LOST';
}

/** The store could not answer, so whether the key is taken is unknown. Says nothing about other holders. */
@SharedAcrossCopies('LockUnavailableError')
export class LockUnavailableError extends LockError {
  readonly code = 'LOCK_UNAVAILABLE';
}

/** This asynchronous chain already holds the key, and would wait for itself. */
@SharedAcrossCopies('LockReentryError')
export class LockReentryError extends LockError {
  readonly code = 'LOCK_REENTRY';
}

/** The application is shutting down: no lock is granted any more. */
@SharedAcrossCopies('LockShutdownError')
export class LockShutdownError extends LockError {
  readonly code = 'LOCK_SHUTDOWN';
}

/** An option, key, decorator or table is not as it must be. Says what was expected, what came and what to do. */
@SharedAcrossCopies('LockConfigError')
export class LockConfigError extends LockError {
  readonly code = 'LOCK_CONFIG';
}
