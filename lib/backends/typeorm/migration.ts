import type { MigrationInterface, QueryRunner } from 'typeorm';
import { OptionErrors } from '../../core/option-errors.js';
import { dialectOf } from './dialects/dialects.js';
import { settingsFrom } from './options.js';
import { dataSourceOf } from './rows/database.js';
import { createTableSql } from './table/columns.js';
import { DEFAULT_TABLE, collectTableErrors, parseTable, quoteTableName } from './table/table-name.js';

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
    const { table, dialect } = this.#tableIn(queryRunner);
    await queryRunner.query(createTableSql(table, dialect));
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(`DROP TABLE ${this.#tableIn(queryRunner).table}`);
  }

  #tableIn(queryRunner: QueryRunner) {
    const settings = { dataSource: dataSourceOf(queryRunner), table: this.table };
    const { type, userOptions } = settingsFrom(settings);
    const dialect = dialectOf(type);
    return { dialect, table: quoteTableName(parseTable(this.table), userOptions(), dialect.quote) };
  }
}

/**
 * {@link CreateDistributedLock1700000000000} for another table.
 *
 * @throws LockConfigError if the name is not valid
 */
export function distributedLockMigration({ table }: { table: string }): new () => MigrationInterface {
  const errors = new OptionErrors();
  collectTableErrors(errors, table, 'postgres');
  errors.throwIfAny('Wrong options of distributedLockMigration');
  return class extends CreateDistributedLock1700000000000 {
    override readonly name = `CreateDistributedLock_${table.replace('.', '_')}_${TIMESTAMP}`;
    protected override readonly table = table;
  };
}
