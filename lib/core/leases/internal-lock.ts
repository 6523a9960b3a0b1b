import { unconfirmedReleaseError } from '../error-factories.js';
import type { LockLostError } from '../errors.js';
import type { EventSubject, LockPurpose } from '../events.js';
import type { Lock } from '../lock.js';
import type { Abortable } from './abortable-lock.js';
import type { HeldLock } from './held-lock.js';
import type { ReleaseListener } from './releaser.js';

/** What the core knows of a lock that it gave to a caller: one handle, or several handles that are one lock. */
export interface InternalLock extends Lock, EventSubject, Abortable {
  /** By which its context is found: the key in the store, or those of all its keys. */
  readonly storeKeys: string | readonly string[];
  readonly purpose: LockPurpose;
  /** The fencing token in its events. */
  readonly eventToken: bigint;
  readonly isHeld: boolean;
  readonly isLost: boolean;
  /** Whether it depends on this held lock. */
  uses(held: HeldLock): boolean;
  detectLoss(): void;
  /** Marks the lock as released and releases it. */
  startRelease(listener: ReleaseListener): void;
  /** Releases a lost lock once its work has ended: the store may keep it for longer than this process knows. */
  releaseLost(onSent?: () => void): void;
  /** Makes the lock lost for this reason, and releases it in no case: what was done under it may take effect later. */
  loseWithoutRelease(reason: LockLostError): void;
  /** Warns if a transaction is open that was used under the lock: its COMMIT comes after the release. */
  warnOfOpenTransaction(): void;
  addView(view: Abortable): void;
  removeView(view: Abortable): void;
}

/**
 * Releases a lock for its caller: `false` if it was no longer held. `maxRemainingMs` is how long its lease still lasts at most.
 *
 * @throws LockUnavailableError or LockShutdownError if the release was not confirmed
 */
export function releaseForCaller(
  lock: InternalLock,
  maxRemainingMs: () => number | undefined = () => undefined,
): Promise<boolean> {
  if (!lock.isHeld) {
    lock.releaseLost();
    return Promise.resolve(false);
  }
  lock.warnOfOpenTransaction();
  return new Promise((resolve, reject) =>
    lock.startRelease({
      onResult: (result) => {
        if (result.kind === 'unknown')
          reject(unconfirmedReleaseError(lock.key, maxRemainingMs(), result.cause));
        else resolve(result.kind === 'released');
      },
    }),
  );
}
