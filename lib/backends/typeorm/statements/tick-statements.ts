import type { AcquisitionId, TickRequest } from '../../../core/backend.js';
import type { ReleaseResult } from '../../../core/backend-results.js';
import type { KeyCleanUp } from '../../../core/tick.js';
import type { Session } from '../connections/session.js';
import { type LockRow, microseconds, releaseResultFrom, toRequestRow } from '../table/lock-row.js';
import type { RunStatement } from './named-parameters.js';

export type TickStatement = 'claim' | 'setTick' | 'releaseEndedRun' | 'cleanUp';

type ReleasedRows = readonly [{ readonly others_wait: boolean | number }?];

/** The conditions under which a tick is granted. */
export interface ClaimConditions {
  /** The row as it was read. */
  readonly row: LockRow;
  readonly attempt: number;
  /** In µs of the database's clock. */
  readonly notAfterUs: number;
}

/** The statements on the rows of jobs, with a tick. */
export const createTickStatements = (run: RunStatement<TickStatement>) => ({
  /** Grants a free key with its tick if the row has not changed. Resolves to the fencing token, otherwise `undefined`. */
  async claim(
    session: Session,
    request: TickRequest,
    { row, attempt, notAfterUs }: ClaimConditions,
  ): Promise<bigint | undefined> {
    const granted = await run(session, 'claim', {
      ...toRequestRow(request, notAfterUs),
      ...{ tickMs: request.tick.tickMs, attempt },
      ...{ oldVersion: row.fencingToken, oldExpiresAtUs: row.expiresAtUs },
      ...{ oldTickMs: row.tickMs, oldAttempt: row.attempt },
    });
    const [grantedRow] = granted as [{ readonly version: string | number }?];
    return grantedRow && BigInt(grantedRow.version);
  },

  /** Writes the newest tick if the row still has the one that was read, and it is not too late. Resolves to whether it did. */
  async setTick(
    session: Session,
    tick: { readonly key: string; readonly latestUs: number } & Pick<LockRow, 'tickMs' | 'attempt'>,
    { tickMs, attempt }: LockRow,
  ): Promise<boolean> {
    return (await run(session, 'setTick', { ...tick, oldTickMs: tickMs, oldAttempt: attempt })).length > 0;
  },

  /** Releases the key of a run that has ended, and marks its tick as ended. */
  async releaseEndedRun(session: Session, { key, holder }: AcquisitionId): Promise<ReleaseResult> {
    const [released] = (await run(session, 'releaseEndedRun', { key, holder })) as ReleasedRows;
    return releaseResultFrom(released && Boolean(released.others_wait));
  },

  /**
   * Deletes the free rows from `fromKey` to before `beforeKey`. A row whose run has no recorded end is deleted only
   * `afterMs` after the run was last known to be active.
   */
  async cleanUp(session: Session, { fromKey, beforeKey, afterMs }: KeyCleanUp): Promise<void> {
    await run(session, 'cleanUp', { fromKey, beforeKey, afterUs: microseconds(afterMs) });
  },
});
