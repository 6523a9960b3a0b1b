import type { ReleaseResult } from '../backend-results.js';
import type { Clock } from '../clock.js';
import { lostDuringWorkError } from '../error-factories.js';
import type { EventSubject, Events } from '../events.js';

/** The lease of the caller that uses a held lock. */
export interface LockUser extends EventSubject {
  /** The fencing token in its events. */
  readonly eventToken: bigint;
  readonly waitedMs: number;
  /** By the monotonic clock. */
  readonly acquiredAtMs: number;
  abort(reason: Error): void;
}

export interface Publisher {
  readonly events: Events;
  readonly clock: Clock;
}

/** Publishes how the lock of a caller ended. Each lock ends with one of these events, or with `lost` before its release. */
export function publishEnd(key: string, lease: LockUser, result: ReleaseResult, publisher: Publisher): void {
  const { events } = publisher;
  const { eventToken: fencingToken } = lease;
  if (result.kind === 'released') publishReleased(key, lease, publisher);
  else if (result.kind === 'gone')
    events.emit('lost', { key, fencingToken, error: lostDuringWorkError(key) }, lease);
  else {
    const { cause } = result;
    events.emit('unavailable', { key, operation: 'release', fencingToken, cause }, lease);
  }
}

/** Publishes that the lock was released, or handed over to the next caller of this process. */
export function publishReleased(key: string, lease: LockUser, { events, clock }: Publisher): void {
  if (!events.hasListeners('released')) return;
  const { eventToken: fencingToken, waitedMs, acquiredAtMs } = lease;
  const heldMs = clock.monotonicMs() - acquiredAtMs;
  events.emit('released', { key, fencingToken, heldMs, waitedMs }, lease);
}
