import { EntitySchema, type MigrationInterface, type QueryRunner } from 'typeorm';
import { OptionErrors } from '../../core/option-errors.js';
import { SUPPORTED_TYPES, type SupportedType, dialectOf, resolveTypeormOptions } from './typeorm-options.js';
import { dataSourceOf } from './rows/database.js';
import {
  DEFAULT_TABLE,
  collectTableErrors,
  columnsOf,
  createTableSql,
  parseTableName,
} from './table/table-definition.js';

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
  errors.requiredOneOf('options.type', type, SUPPORTED_TYPES);
  collectTableErrors(errors, table, type);
  errors.throwIfAny('Wrong options of distributedLockEntity');
  const { name, schema } = parseTableName(options.table ?? DEFAULT_TABLE);
  const columns = columnsOf(dialectOf(options.type).columnTypes);
  return new EntitySchema({
    name: options.table ?? DEFAULT_TABLE,
    tableName: name,
    ...(schema && { schema }),
    columns: Object.fromEntries(columns.map((column) => [column.name, column])),
  });
}

/** TypeORM orders migrations by the number at the end of their names. */
const TIMESTAMP = 1_700_000_000_000;

/**
 * Creates the table of the locks if it does not exist. Add it to `migrations` of your data source if you pass
 * `createTable: false` to `typeormBackend`. For another table name use {@link distributedLockMigration}.
 *
 * Reverting the migration drops the table, and with it all locks, ticks and fencing tokens.
 */
export class CreateDistributedLock1700000000000 implements MigrationInterface {
  readonly name: string = `CreateDistributedLock${TIMESTAMP}`;
  protected readonly table: string = DEFAULT_TABLE;

  async up(queryRunner: QueryRunner): Promise<void> {
    const { table, dialect } = this.#settingsFor(queryRunner);
    await queryRunner.query(createTableSql(table, dialect));
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(`DROP TABLE ${this.#settingsFor(queryRunner).table.inSql}`);
  }

  #settingsFor(queryRunner: QueryRunner) {
    return resolveTypeormOptions({ dataSource: dataSourceOf(queryRunner), table: this.table });
  }
}

/**
 * {@link CreateDistributedLock1700000000000} for another table.
 *
 * @throws LockConfigError if the name is not valid
 */
export function distributedLockMigration(options: { table: string }): new () => MigrationInterface {
  const errors = new OptionErrors();
  const given = errors.object('options', options, ['table']);
  if (given.table === undefined) errors.add('expected options.table to be a text, got undefined');
  collectTableErrors(errors, given.table, 'postgres');
  errors.throwIfAny('Wrong options of distributedLockMigration');
  const { table } = options;
  return class extends CreateDistributedLock1700000000000 {
    override readonly name = `CreateDistributedLock_${table.replace('.', '_')}_${TIMESTAMP}`;
    protected override readonly table = table;
  };
}
