import { EntitySchema } from 'typeorm';
import { OptionErrors } from '../../core/option-errors.js';
import { columnsOf } from './table/columns.js';
import { SUPPORTED_TYPES, type SupportedType, dialectOf } from './dialects/dialects.js';
import { DEFAULT_TABLE, collectTableErrors, parseTable } from './table/table-name.js';

export interface DistributedLockEntityOptions {
  /** The `type` of the data source. */
  type: SupportedType;
  /**
   * As given to `typeormBackend`.
   *
   * @default 'distributed_lock'
   */
  table?: string;
}

/**
 * The table as an entity, for `entities` of a data source whose schema TypeORM synchronizes or compares. Without it
 * a generated migration does not know the table, which TypeORM leaves alone. Not for reading or writing locks.
 *
 * An `entityPrefix` of the data source is put before the name, so `typeormBackend` must then be given the whole name.
 *
 * @throws LockConfigError
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
