import type { Session } from '../connections/session.js';
import {
  type LockRowColumns,
  type LockRowSnapshot,
  type Text,
  snapshotFrom,
  textFrom,
} from '../table/lock-row.js';
import type { RunStatement } from './named-parameters.js';

export type RowStatement = 'readRow' | 'insertMissing' | 'forceRelease' | 'appendHistory' | 'readHistory';

/** The statements on the row of one key. */
export const createRowStatements = (run: RunStatement<RowStatement>) => ({
  async readRow(session: Session, key: string): Promise<LockRowSnapshot> {
    const [row] = (await run(session, 'readRow', { key })) as [LockRowColumns];
    return snapshotFrom(row);
  },

  /** Inserts a free row for the key if it has none. */
  async insertMissing(session: Session, key: string): Promise<void> {
    await run(session, 'insertMissing', { key });
  },

  /** `fencingToken` may be any token of the current grant. */
  async forceRelease(session: Session, key: string, fencingToken: bigint): Promise<boolean> {
    return (await run(session, 'forceRelease', { key, fencingToken })).length > 0;
  },

  async appendHistory(session: Session, key: string, entry: string): Promise<void> {
    await run(session, 'appendHistory', { key, entry });
  },

  /** Reads the lines that {@link appendHistory} has written, as one text. */
  async readHistory(session: Session, key: string): Promise<string> {
    const [row] = (await run(session, 'readHistory', { key })) as [{ readonly notes: Text | null }?];
    return textFrom(row?.notes ?? null);
  },
});
