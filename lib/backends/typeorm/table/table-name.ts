import type { OptionErrors } from '../../../core/option-errors.js';

export const DEFAULT_TABLE = 'distributed_lock';

/** Names that every database accepts. PostgreSQL has the shortest limit, 63 characters. */
const NAME_PATTERN = '[A-Za-z_][A-Za-z0-9_]{0,62}';

interface TableName {
  readonly schema?: string;
  readonly name: string;
}

export function collectTableErrors(errors: OptionErrors, table: unknown, type: unknown): void {
  const takesSchema = type === 'postgres';
  const shape = new RegExp(takesSchema ? `^(${NAME_PATTERN}\\.)?${NAME_PATTERN}$` : `^${NAME_PATTERN}$`);
  const expected = `a name of letters, digits and underscores${takesSchema ? ", such as 'lock' or 'schema.lock'" : ''}`;
  errors.expect('options.table', table, expected, typeof table === 'string' && shape.test(table));
}

export function parseTable(table: string = DEFAULT_TABLE): TableName {
  const [name = table, schema] = table.split('.').reverse();
  return schema === undefined ? { name } : { schema, name };
}

/** Quotes any name with this character. */
export const quoteWith =
  (quote: string) =>
  (name: string): string =>
    quote + name.replaceAll(quote, quote + quote) + quote;

/** The quoted name for SQL. A table without a schema is in the `schema` of the data source, as are TypeORM's own tables. */
export function quoteTableName(
  { name, schema }: TableName,
  userOptions: object,
  quote: (name: string) => string,
): string {
  const schemaInUse =
    schema ?? ('schema' in userOptions ? (userOptions.schema as string | null | undefined) : undefined);
  return schemaInUse ? `${quote(schemaInUse)}.${quote(name)}` : quote(name);
}
