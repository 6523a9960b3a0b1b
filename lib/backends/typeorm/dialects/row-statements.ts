import { type LockRowColumns, type Text, microseconds, snapshotFrom, textFrom } from '../table/lock-row.js';
import type { Statements } from './dialect.js';

type RowStatement = 'readRow' | 'insertMissing' | 'appendHistory' | 'readHistory' | 'cleanUp';

/** The statements that differ between database servers only in their text, and in how a parameter is `encoded`. */
export const createRowStatements = (
  sql: Record<RowStatement, string>,
  encoded: (text: string) => Text,
): Pick<Statements, RowStatement> => ({
  async readRow({ query }, key) {
    const [row] = (await query(sql.readRow, [encoded(key)])) as [LockRowColumns];
    return snapshotFrom(row);
  },
  async insertMissing({ query }, key) {
    await query(sql.insertMissing, [encoded(key)]);
  },
  async appendHistory({ query }, key, entry) {
    await query(sql.appendHistory, [encoded(key), encoded(entry)]);
  },
  async readHistory({ query }, key) {
    const [row] = (await query(sql.readHistory, [encoded(key)])) as { notes: Text | null }[];
    return textFrom(row?.notes ?? null);
  },
  cleanUp: ({ query }, { fromKey, beforeKey, afterMs }) =>
    query(sql.cleanUp, [encoded(fromKey), encoded(beforeKey), microseconds(afterMs)]),
});
