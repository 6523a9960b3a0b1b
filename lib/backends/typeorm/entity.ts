import { EntitySchema } from 'typeorm';
import { OptionErrors } from '../../core/option-errors.js';
import { SUPPORTED_TYPES, type SupportedType, dialectOf } from './dialects/dialects.js';
import { columnsOf } from './table/columns.js';
import { DEFAULT_TABLE, collectTableErrors, parseTable } from './table/table-name.js';

export interface DistributedLockEntityOptions {
  /** The `type` of the data source. */
  type: SupportedType;
  /**
   * The table name, the same as in the options of `typeormBackend`.
   *
   * @default 'distributed_lock'
   */
  table?: string;
}

/**
 * Returns the table of the locks as an entity. Add it to `entities` of a data source if you want TypeORM to create the
 * table, by `synchronize` or a generated migration. Without the entity, TypeORM does not change the table. Do not read
 * or write locks through it.
 *
 * If the data source has an `entityPrefix`, TypeORM adds it to the name. Then pass the whole name to `typeormBackend`.
 *
 * @throws LockConfigError if an option is wrong
 */
export function distributedLockEntity(options: DistributedLockEntityOptions): EntitySchema {
  const errors = new OptionErrors();
  const { type, table } = errors.object('options', options, ['type', 'table']);
  errors.oneOf('options.type', type ?? null, SUPPORTED_TYPES);
  collectTableErrors(errors, table, type);
  errors.throwIfAny('Wrong options of distributedLockEntity');
  const { name, schema } = parseTable(options.table);
  const columns = columnsOf(dialectOf(options.type).columnTypes);
  return new EntitySchema({
    name: options.table ?? DEFAULT_TABLE,
    tableName: name,
    ...(schema && { schema }),
    columns: Object.fromEntries(columns.map((column) => [column.name, column])),
  });
}
