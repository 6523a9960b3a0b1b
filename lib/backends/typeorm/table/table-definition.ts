import type { EntitySchemaColumnOptions } from 'typeorm';
import type { OptionErrors } from '../../../core/option-errors.js';

export const DEFAULT_TABLE = 'distributed_lock';

/** Names that every database accepts. PostgreSQL has the shortest limit, 63 characters. */
const NAME_PATTERN = '[A-Za-z_][A-Za-z0-9_]{0,62}';

export function collectTableErrors(errors: OptionErrors, table: unknown, type: unknown): void {
  const takesSchema = type === 'postgres';
  const shape = new RegExp(takesSchema ? `^(${NAME_PATTERN}\\.)?${NAME_PATTERN}$` : `^${NAME_PATTERN}$`);
  const expected = `a name of letters, digits and underscores${takesSchema ? ", such as 'lock' or 'schema.lock'" : ''}`;
  errors.expect('options.table', table, expected, typeof table === 'string' && shape.test(table));
}

/** The table of the locks. */
export interface Table {
  readonly name: string;
  /** The quoted name, with its schema if there is one. */
  readonly inSql: string;
}

/** A table without a schema is in the `schema` of the data source, as are TypeORM's own tables. */
export function tableOf(fullName: string, userOptions: object, { quote }: TableDialect): Table {
  const { name, schema = (userOptions as { schema?: string | null }).schema } = parseTableName(fullName);
  return { name, inSql: schema ? `${quote(schema)}.${quote(name)}` : quote(name) };
}

export function parseTableName(fullName: string): { readonly name: string; readonly schema?: string } {
  const [name = fullName, schema] = fullName.split('.').reverse();
  return schema === undefined ? { name } : { name, schema };
}

/** Quotes any name with this character. */
export const quoteWith =
  (quote: string) =>
  (name: string): string =>
    quote + name.replaceAll(quote, quote + quote) + quote;

type ColumnType = Pick<EntitySchemaColumnOptions, 'type' | 'length' | 'charset' | 'collation'>;

/** The column types that differ between databases. */
interface ColumnTypes {
  /** Compared byte by byte, and long enough for any key with its namespace. */
  readonly key: ColumnType;
  /** Compared byte by byte. */
  readonly holder: ColumnType;
  readonly instance: ColumnType;
  /** Long enough for as many history entries as are kept. */
  readonly notes: ColumnType;
}

interface Column extends ColumnType {
  readonly name: string;
  readonly primary?: boolean;
  readonly nullable?: boolean;
}

/**
 * One row for each key. After a release the row stays for a while, so that its version does not go back, and as long as it has
 * a tick.
 * Times are those of the database's clock, in µs since 1970, as BIGINT in every database.
 */
export const columnsOf = (types: ColumnTypes): readonly Column[] => [
  { name: 'key', ...types.key, primary: true },
  // The holder of the current grant, NULL after a release.
  { name: 'holder', ...types.holder, nullable: true },
  { name: 'instance', ...types.instance },
  // The first fencing token of the newest grant, which has as many tokens as the next column says.
  { name: 'version', type: 'bigint' },
  { name: 'token_count', type: 'bigint' },
  // The end of the lease, 0 after a release.
  { name: 'expires_at', type: 'bigint' },
  // The time of the grant; after a release, the time of the release: a run without an end was surely active until then.
  { name: 'acquired_at', type: 'bigint' },
  // The newest claimed tick, in ms.
  { name: 'tick', type: 'bigint', nullable: true },
  // How often the tick was granted; 0 once a run of it has ended.
  { name: 'attempt', type: 'bigint', nullable: true },
  // Until then waiters of the key want to be notified of its release.
  { name: 'waiting_until', type: 'bigint', nullable: true },
  // The run history of a job: one line for each run, the newest first. It has its own row, so that the job's row stays short.
  { name: 'notes', ...types.notes, nullable: true },
];

/** The parts of a dialect that the creation of a table needs. */
export interface TableDialect {
  readonly columnTypes: ColumnTypes;
  /** Follows the list of columns. */
  readonly tableOptions?: string;
  quote(name: string): string;
}

/** The statement that creates the table if it does not exist. */
export function createTableSql(
  { inSql }: Table,
  { columnTypes, tableOptions = '', quote }: TableDialect,
): string {
  const columns = columnsOf(columnTypes);
  const keys = columns.filter(({ primary }) => primary).map(({ name }) => quote(name));
  const definitions = [
    ...columns.map((column) => columnSql(column, quote)),
    `PRIMARY KEY (${keys.join(', ')})`,
  ];
  return `CREATE TABLE IF NOT EXISTS ${inSql} (\n  ${definitions.join(',\n  ')}\n) ${tableOptions}`.trimEnd();
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
