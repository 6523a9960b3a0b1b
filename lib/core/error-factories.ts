import {
  type LockError,
  LockConfigError,
  LockLostError,
  LockReentryError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from './errors.js';
import { formatReason, formatValue } from './format.js';
import type { LockOrderEdge } from './lock-order-graph.js';
import { describeInversion, oppositeCalls } from './lock-order-text.js';
import { describeStoreRefusal } from './store-failures.js';

/** A `LockConfigError` is returned as it is, because no retry can help. */
export function unavailableError(key: string, cause: unknown): LockError {
  if (cause instanceof LockConfigError) return cause;
  const refusal = describeStoreRefusal(cause);
  const message =
    refusal === undefined
      ? `The store did not say whether "${key}" is free (${formatReason(cause)}). If it was granted, it is released in ` +
        `the background. Try again when the store answers.`
      : `"${key}" cannot be locked: the lock store ${refusal}.`;
  return new LockUnavailableError(message, { key, cause });
}

export const extensionFailedError = (key: string, cause: unknown): LockError =>
  cause instanceof LockConfigError
    ? cause
    : new LockUnavailableError(`The store did not confirm that lock "${key}" was extended. Try again.`, {
        key,
        cause,
      });

/** @param key What was read; empty for all locks. */
export const readFailedError = (key: string, cause: unknown) =>
  new LockUnavailableError(
    `The store did not answer${key && ` about "${key}"`} (${formatReason(cause)}). Try again when it answers.`,
    { key, cause },
  );

export const changeFailedError = (key: string, cause: unknown) =>
  new LockUnavailableError(
    `The store did not answer about "${key}" (${formatReason(cause)}). The change may or may not have taken effect: look at ` +
      `it when the store answers.`,
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

/** The call would wait in the opposite order of earlier calls, which are the cause of the error. */
export const lockOrderError = (edge: LockOrderEdge) =>
  new LockConfigError(describeInversion(edge), { key: edge.key, cause: oppositeCalls(edge) });

export const leaseExpiredError = (key: string, leaseMs: number, isRenewed: boolean) => {
  const why = isRenewed ? ' because no renewal reached the store in time' : '';
  return new LockLostError(`Lost lock "${key}": its ${leaseMs} ms lease expired${why}.`, { key });
};

export const grantLostError = (key: string) =>
  new LockLostError(
    `Lost lock "${key}": the store no longer has this grant. Its lease expired, it was released by force, ` +
      `or the store lost it in a restart.`,
    { key },
  );

export const lostDuringWorkError = (key: string) =>
  new LockLostError(
    `Lock "${key}" was lost before the work under it ended, so another holder may have worked at the same time. ` +
      `Check the fencing token where you write; raise leaseMs if this process pauses for long.`,
    { key },
  );

/** The lock does not have this key. */
export const foreignKeyError = (key: unknown, keys: readonly string[]) =>
  new LockConfigError(
    `Expected fencingTokenOf() to get a key of this lock, which are ${keys.map(formatValue).join(', ')}, got ${formatValue(key)}.`,
  );

/** A lock of several keys has one fencing token for each. */
export const severalTokensError = (keys: readonly string[]) =>
  new LockConfigError(
    `A lock of several keys has no fencing token of its own: each key has one. Write the data of a key with ` +
      `lock.fencingTokenOf(key). The keys: ${keys.map(formatValue).join(', ')}.`,
  );

/** Others read at the same time, so no order of tokens would protect what is written. */
export const readTokenError = (key: string) =>
  new LockConfigError(
    `Expected a lock with a fencing token, got the read lock "${key}", under which nothing may be written. Write under ` +
      `a lock with { mode: 'write' }.`,
    { key },
  );

/** The context holds the key in the other mode. */
export const otherModeError = (key: string, mode: 'read' | 'write') =>
  new LockReentryError(
    `This asynchronous context already holds "${key}" to ${mode === 'read' ? 'write' : 'read'}, and would wait for ` +
      `itself to ${mode} it. Acquire it once with { mode: 'write' }, or release it before.`,
    { key },
  );

export const lockInDoubtError = (key: string) =>
  new LockLostError(
    `Lock "${key}" is in doubt: this machine slept or its clock was set, and the store has not confirmed the lease ` +
      `since. The store is being asked now; if it confirms, the lock is valid again.`,
    { key },
  );

export const lockReleasedError = (key: string) =>
  new LockLostError(`Lock "${key}" is no longer held: it was released.`, { key });

/** A view of the lock is used after the outer work has released it. */
export const outerReleasedError = (key: string) =>
  new LockLostError(
    `Lock "${key}" was released by the outer work before the inner work that re-entered it had ended. Await the ` +
      `inner work inside the outer work. If neither started the other, a queue or pool ran one in the asynchronous ` +
      `context of the other: bind its tasks with AsyncResource.bind().`,
    { key },
  );

/** A `LockShutdownError` is returned as it is: nothing retries the release. */
export const unconfirmedReleaseError = (
  key: string,
  maxRemainingMs: number | undefined,
  cause: unknown,
): LockError =>
  cause instanceof LockShutdownError
    ? cause
    : new LockUnavailableError(
        `The store did not confirm the release of lock "${key}". The release is retried in the background, ` +
          `and the lease ends by itself${maxRemainingMs === undefined ? '' : ` within ${Math.ceil(maxRemainingMs)} ms`}.`,
        { key, cause },
      );

export const applicationEndedError = (key: string) =>
  new LockShutdownError('The application has ended.', { key });

export const lateReleaseError = (key: string) =>
  new LockShutdownError(
    `Cannot release lock "${key}": the application has ended. The lease ends by itself.`,
    { key },
  );
