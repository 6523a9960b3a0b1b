import type { RenewRequest } from '../../../core/backend.js';
import type { RenewResult } from '../../../core/backend-results.js';
import { deadlineIn } from '../../../core/requests/deadline.js';
import { SessionOverError, resultOfError } from '../wire/zookeeper-errors.js';
import type { RunRecords } from '../ticks/run-records.js';
import type { CreatedLock } from './entry-creation.js';
import type { LockExtension } from './lock-extension.js';
import type { OwnEntries } from './own-entries.js';

interface RenewalsParts {
  readonly ownEntries: OwnEntries;
  readonly extension: LockExtension;
  readonly runRecords: RunRecords;
}

const LOST = { kind: 'lost' } as const;

/**
 * Renews locks: makes sure that the session lasts for long enough, and reads that they are still held. It never adds fencing tokens:
 * an entry that was created before the addition would have smaller ones.
 */
export class Renewals {
  readonly #parts: RenewalsParts;

  constructor(parts: RenewalsParts) {
    this.#parts = parts;
  }

  /** Never rejects. */
  async renew(request: RenewRequest, timeoutMs: number): Promise<RenewResult> {
    const { ownEntries, extension, runRecords } = this.#parts;
    const own = ownEntries.get(request);
    // A lock that is about to be deleted must not be renewed, nor one of an earlier session.
    if (!own?.isHeld || own.path === undefined) return LOST;
    const deadline = deadlineIn(timeoutMs);
    try {
      if (!(await extension.extend(own as CreatedLock, request.leaseMs, deadline))) return LOST;
      if (own.value.isRun)
        await runRecords.onRenewed(own, request.leaseMs, deadline.leftMs).catch(() => undefined);
      return { kind: 'renewed' };
    } catch (cause) {
      return cause instanceof SessionOverError ? LOST : resultOfError(cause);
    }
  }
}
