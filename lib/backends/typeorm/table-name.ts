import type { Faults } from '../../core/faults.js';

export const DEFAULT_TABLE = 'distributed_lock';

/** As much as every database takes, PostgreSQL being the one with the shortest names. */
const NAME = '[A-Za-z_][A-Za-z0-9_]{0,62}';

interface TableName {
  readonly schema?: string;
  readonly name: string;
}

export function findTableFaults(faults: Faults, table: unknown, type: unknown): void {
  const takesSchema = type === 'postgres';
  const shape = new RegExp(takesSchema ? `^(${NAME}\\.)?${NAME}$` : `^${NAME}$`);
  const expected = `a name of letters, digits and underscores${takesSchema ? ", such as 'lock' or 'schema.lock'" : ''}`;
  faults.expect('options.table', table, expected, typeof table === 'string' && shape.test(table));
}

export function parseTable(table: string = DEFAULT_TABLE): TableName {
  const [name = table, schema] = table.split('.').reverse();
  return schema === undefined ? { name } : { schema, name };
}

/** Names between such marks, whatever they hold. */
export const quotedBy =
  (mark: string) =>
  (name: string): string =>
    mark + name.replaceAll(mark, mark + mark) + mark;

/** As SQL knows it. A table without a schema lies where TypeORM puts all tables of this data source. */
export function quoted(
  { name, schema }: TableName,
  usersOptions: object,
  quote: (name: string) => string,
): string {
  const home =
    schema ?? ('schema' in usersOptions ? (usersOptions.schema as string | null | undefined) : undefined);
  return home ? `${quote(home)}.${quote(name)}` : quote(name);
}
