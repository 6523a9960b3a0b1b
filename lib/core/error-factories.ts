import {
  type LockError,
  LockConfigError,
  LockReentryError,
  LockTimeoutError,
  LockUnavailableError,
} from './errors.js';
import { formatReason } from './format.js';

/** A `LockConfigError` is returned as it is, because no retry can help. */
export const unavailableError = (key: string, cause: unknown): LockError =>
  cause instanceof LockConfigError
    ? cause
    : new LockUnavailableError(
        `The store did not say whether "${key}" is free (${formatReason(cause)}). If it was granted, it is released in ` +
          `the background. Try again when the store answers.`,
        { key, cause },
      );

export const extensionFailedError = (key: string, cause: unknown): LockError =>
  cause instanceof LockConfigError
    ? cause
    : new LockUnavailableError(`The store did not confirm that lock "${key}" was extended. Try again.`, {
        key,
        cause,
      });

export const inspectionFailedError = (key: string, cause: unknown) =>
  new LockUnavailableError(
    `The store did not answer about "${key}" (${formatReason(cause)}). A forced release may or may not have taken ` +
      `effect: check with inspect() when the store answers.`,
    { key, cause },
  );

/** @param remainingMs The rest of the lease of another process, if one holds the key. */
export const timeoutError = (key: string, waitedMs: number, remainingMs: number) =>
  new LockTimeoutError(
    `"${key}" was still taken after ${Math.round(waitedMs)} ms. Raise waitMs, or make the work under the lock shorter.` +
      (remainingMs > 0
        ? ` If its holder has died, the lock is free when its lease ends, in ${Math.ceil(remainingMs)} ms.`
        : ''),
    { key },
  );

export const reentryError = (key: string) =>
  new LockReentryError(
    `This asynchronous context already holds "${key}" and would wait for itself. Pass { reentrant: true } to re-enter ` +
      `the outer lock, or lock something narrower.`,
    { key },
  );
