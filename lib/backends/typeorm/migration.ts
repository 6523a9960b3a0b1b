import type { DataSource, MigrationInterface, QueryRunner } from 'typeorm';
import { OptionErrors } from '../../core/option-errors.js';
import { createTableSql } from './table/columns.js';
import { dialectOf } from './dialects/dialects.js';
import { settingsFrom } from './options.js';
import { DEFAULT_TABLE, collectTableErrors, parseTable, quoteTableName } from './table/table-name.js';

/** TypeORM takes the order of migrations from the end of their names. */
const TIMESTAMP = 1_700_000_000_000;

/**
 * Creates the table of the locks, and drops it on the way down, which forgets all locks, ticks and fencing tokens. For
 * `migrations` of your data source when `typeormBackend` gets `createTable: false`; for another table name see
 * {@link distributedLockMigration}. Does nothing where the table is there already.
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
    // TypeORM 0.3 knows the first name only, and 1 will drop it.
    const { connection, dataSource = connection } = queryRunner as {
      connection: DataSource;
      dataSource?: DataSource;
    };
    const { type, userOptions } = settingsFrom({ dataSource, table: this.table });
    const dialect = dialectOf(type);
    return { dialect, table: quoteTableName(parseTable(this.table), userOptions(), dialect.quote) };
  }
}

/**
 * The same migration for another table.
 *
 * @throws LockConfigError
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
