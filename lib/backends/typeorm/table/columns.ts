import type { EntitySchemaColumnOptions } from 'typeorm';

type ColumnType = Pick<EntitySchemaColumnOptions, 'type' | 'length' | 'charset' | 'collation'>;

/** The types that differ between databases. */
interface ColumnTypes {
  /** Compared byte for byte, and long enough for any key with its namespace. */
  readonly key: ColumnType;
  /** Compared byte for byte. */
  readonly holder: ColumnType;
  readonly instance: ColumnType;
  /** As many and as long ones as are kept. */
  readonly notes: ColumnType;
}

interface Column extends ColumnType {
  readonly name: string;
  readonly primary?: boolean;
  readonly nullable?: boolean;
}

/**
 * One row for each key. It stays when the key is released, so that its version never goes back and its tick is
 * remembered. Times are the database's own, in µs since 1970; BIGINT has room for them in every database alike.
 */
export const columnsOf = (types: ColumnTypes): readonly Column[] => [
  { name: 'key', ...types.key, primary: true },
  // The identity of the present acquisition, NULL after a release.
  { name: 'holder', ...types.holder, nullable: true },
  { name: 'instance', ...types.instance },
  // The fencing token of the newest grant, the first of as many as the next column says.
  { name: 'version', type: 'bigint' },
  { name: 'token_count', type: 'bigint' },
  // 0 after a release.
  { name: 'expires_at', type: 'bigint' },
  // The time of the release after one: until then a run that has not ended was surely on.
  { name: 'acquired_at', type: 'bigint' },
  // The newest claimed tick, in ms.
  { name: 'tick', type: 'bigint', nullable: true },
  // How often it was given out; 0 once a run of it has ended.
  { name: 'attempt', type: 'bigint', nullable: true },
  // Until then somebody waits for the key and wants to know of its release.
  { name: 'waiting_until', type: 'bigint', nullable: true },
  // How runs of a job went, a line each, the newest first. In a row of its own, so that the job's stays short.
  { name: 'notes', ...types.notes, nullable: true },
];

/** What of a dialect the creation of a table depends on. */
export interface TableDialect {
  readonly columnTypes: ColumnTypes;
  /** Stands behind the columns. */
  readonly tableOptions?: string;
  quote(name: string): string;
}

/** The statement that creates the table, whose name comes quoted. Does nothing where it is there. */
export function createTableSql(
  table: string,
  { columnTypes, tableOptions = '', quote }: TableDialect,
): string {
  const columns = columnsOf(columnTypes);
  const keys = columns.filter(({ primary }) => primary).map(({ name }) => quote(name));
  const definitions = [
    ...columns.map((column) => columnSql(column, quote)),
    `PRIMARY KEY (${keys.join(', ')})`,
  ];
  return `CREATE TABLE IF NOT EXISTS ${table} (\n  ${definitions.join(',\n  ')}\n) ${tableOptions}`.trimEnd();
}

function columnSql(
  { name, type, length, charset, collation, nullable }: Column,
  quote: (name: string) => string,
): string {
  const parts = [
    quote(name),
    length === undefined ? String(type) : `${String(type)}(${length})`,
    charset && `CHARACTER SET ${charset}`,
    collation && `COLLATE ${quote(collation)}`,
    !nullable && 'NOT NULL',
  ];
  return parts.filter(Boolean).join(' ');
}
