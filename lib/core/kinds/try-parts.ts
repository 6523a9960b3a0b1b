import type { Taken } from '../backend-results.js';
import type { NotGranted } from '../leases/acquirer.js';
import { LockHandle } from '../leases/lock-handle.js';
import type { UnknownResult } from '../unknown-result.js';
import type { AcquireParams } from '../waiting/waiter.js';
import type { WaitQueues } from '../waiting/wait-queues.js';

/**
 * Asks for all parts in one turn of the event loop, so in one batch, and does not wait for any. Returns one result for
 * each part, in their order.
 *
 * @throws the reason of their signal, or of the shutdown. What was granted is then released
 */
export async function tryParts(
  waitQueues: WaitQueues,
  params: readonly AcquireParams[],
): Promise<readonly (LockHandle | NotGranted)[]> {
  const settled = await Promise.allSettled(params.map((part) => waitQueues.tryAcquire(part)));
  const results: (LockHandle | NotGranted)[] = [];
  let rejected: PromiseRejectedResult | undefined;
  for (const outcome of settled) {
    if (outcome.status === 'rejected') rejected = outcome;
    else results.push(outcome.value);
  }
  if (!rejected) return results;
  releaseAll(handlesAmong(results));
  throw rejected.reason;
}

export const handlesAmong = (results: readonly (LockHandle | NotGranted)[]): LockHandle[] =>
  results.filter((result) => result instanceof LockHandle);

/** Whether all were granted, and none was lost while the store had not replied for the others. */
export const areAllHeld = (results: readonly (LockHandle | NotGranted)[]): results is readonly LockHandle[] =>
  results.every((result) => result instanceof LockHandle && !result.isLost);

export const isTaken = (result: LockHandle | NotGranted): result is Taken =>
  !(result instanceof LockHandle) && result.kind === 'taken';

export const isUnknown = (result: LockHandle | NotGranted): result is UnknownResult =>
  !(result instanceof LockHandle) && result.kind === 'unknown';

/** Releases parts that are of no use without the others. Does not wait. */
export function releaseAll(parts: Iterable<LockHandle>): void {
  for (const part of parts) {
    if (part.isHeld) part.startRelease({});
    else part.releaseLost();
  }
}
