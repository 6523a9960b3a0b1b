import { otherTableError } from './table-errors.js';

interface IndexedColumn {
  readonly Column_name: string;
  /** Of an index on the beginning of the column: its length. */
  readonly Sub_part: unknown;
}

/**
 * MySQL and MariaDB would insert another row for each lock of a key, and grant them all, if the key were not unique. Other
 * databases refuse the statements.
 *
 * @throws LockConfigError if the primary key is not that of the lock table
 */
export async function throwIfKeyIsNotUnique(
  query: (sql: string) => Promise<unknown>,
  tableInSql: string,
): Promise<void> {
  const sql = `SHOW INDEX FROM ${tableInSql} WHERE Key_name = 'PRIMARY'`;
  const [column, another] = (await query(sql)) as readonly IndexedColumn[];
  if (column?.Column_name !== 'key' || column.Sub_part !== null || another) throw otherTableError(tableInSql);
}
