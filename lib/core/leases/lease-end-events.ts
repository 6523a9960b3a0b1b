import type { ReleaseResult } from '../backend-results.js';
import type { Clock } from '../clock.js';
import { lostDuringWorkError } from '../error-factories.js';
import type { EventSubject, Events } from '../events.js';

/** The handle of the caller that has a held lock at present. */
export interface CurrentHandle extends EventSubject {
  /** The fencing token in its events. */
  readonly eventToken: bigint;
  readonly waitedMs: number;
  /** By the monotonic clock. */
  readonly acquiredAtMs: number;
  abort(reason: Error): void;
}

export interface EndEventParts {
  readonly events: Events;
  readonly clock: Clock;
}

/** Publishes how the lock of a caller ended. Each lock ends with one of these events, or with `lost` before its release. */
export function publishEnd(
  key: string,
  handle: CurrentHandle,
  result: ReleaseResult,
  publisher: EndEventParts,
): void {
  const { events } = publisher;
  const { eventToken: fencingToken } = handle;
  if (result.kind === 'released') publishReleased(key, handle, publisher);
  else if (result.kind === 'gone')
    events.emit('lost', { key, fencingToken, error: lostDuringWorkError(key) }, handle);
  else {
    const { cause } = result;
    events.emit('unavailable', { key, operation: 'release', fencingToken, cause }, handle);
  }
}

/** Publishes that the lock was released, or handed over to the next caller of this process. */
export function publishReleased(key: string, handle: CurrentHandle, { events, clock }: EndEventParts): void {
  if (!events.hasListeners('released')) return;
  const { eventToken: fencingToken, waitedMs, acquiredAtMs } = handle;
  const heldMs = clock.monotonicMs() - acquiredAtMs;
  events.emit('released', { key, fencingToken, heldMs, waitedMs }, handle);
}
