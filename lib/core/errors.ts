import { SharedAcrossCopies } from './package-copies.js';

export type LockErrorCode =
  'LOCK_TIMEOUT' | 'LOCK_LOST' | 'LOCK_UNAVAILABLE' | 'LOCK_REENTRY' | 'LOCK_SHUTDOWN' | 'LOCK_CONFIG';

export interface LockErrorDetails {
  readonly key?: string;
  readonly cause?: unknown;
}

/** The base class of all errors of this package. Distinguish them by class or by `code`. */
@SharedAcrossCopies('LockError')
export abstract class LockError extends Error {
  abstract readonly code: LockErrorCode;
  /** The key in question, if there is one. Otherwise there is no such property, so that logs do not show `key: undefined`. */
  declare readonly key: string | undefined;

  constructor(message: string, { key, cause }: LockErrorDetails = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    if (key !== undefined) this.key = key;
  }
}

/** The lock was still taken after `waitMs`. */
@SharedAcrossCopies('LockTimeoutError')
export class LockTimeoutError extends LockError {
  readonly code = 'LOCK_TIMEOUT';
}

/** The lock was lost before it was released: another process may hold it by now. */
@SharedAcrossCopies('LockLostError')
export class LockLostError extends LockError {
  readonly code = 'LOCK_LOST';
}

/** The store cannot be reached or did not reply, so it is unknown whether the key is free or taken. */
@SharedAcrossCopies('LockUnavailableError')
export class LockUnavailableError extends LockError {
  readonly code = 'LOCK_UNAVAILABLE';
}

/** This asynchronous context already holds the key, so the call would wait for itself. */
@SharedAcrossCopies('LockReentryError')
export class LockReentryError extends LockError {
  readonly code = 'LOCK_REENTRY';
}

/** The application is shutting down: locks are no longer granted. */
@SharedAcrossCopies('LockShutdownError')
export class LockShutdownError extends LockError {
  readonly code = 'LOCK_SHUTDOWN';
}

/** An option, key, decorator, table or order of locks is wrong. The message says what was expected, what was found and what to do. */
@SharedAcrossCopies('LockConfigError')
export class LockConfigError extends LockError {
  readonly code = 'LOCK_CONFIG';
}

/**
 * For what an application has thrown, or the reason of its signal. Never throws: `instanceof` on a proxy may, and that
 * error would hide the one of the application.
 */
export function isError<E extends Error>(
  type: abstract new (...args: never[]) => E,
  error: unknown,
): error is E {
  try {
    return error instanceof type;
  } catch {
    return false;
  }
}
