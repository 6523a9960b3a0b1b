import {
  type LockError,
  LockConfigError,
  LockReentryError,
  LockTimeoutError,
  LockUnavailableError,
} from './errors.js';
import { formatReason } from './format.js';

/** What only a person can mend is told as it is. */
export const unavailableError = (key: string, cause: unknown): LockError =>
  cause instanceof LockConfigError
    ? cause
    : new LockUnavailableError(
        `The store could not say whether "${key}" is free (${formatReason(cause)}). What may have been granted is ` +
          `given back; try again when the store answers.`,
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
    `The store did not answer about "${key}" (${formatReason(cause)}). If it was to be released by force, that may have ` +
      `happened or not: look with inspect() once the store answers.`,
    { key, cause },
  );

/** `remainingMs`: what is left of the lease of another process. */
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
    `This asynchronous chain already holds "${key}" and would wait for itself. Pass { reentrant: true } to join the ` +
      `outer lock, or lock something narrower.`,
    { key },
  );
