import { LockConfigError } from '../../core/errors.js';
import { columnsOf, createTableSql } from './columns.js';
import type { Dialect, Visit } from './dialect.js';
import { persist } from './persist.js';

interface LockTableOptions {
  readonly dialect: Dialect;
  /** As SQL knows it. */
  readonly table: string;
  readonly createTable: boolean;
}

const MIGRATION =
  'CreateDistributedLock1700000000000 (for another table name distributedLockMigration({ table }))';

/** Sees to it that the table is there and is ours. */
export class LockTable {
  readonly #dialect: Dialect;
  readonly #table: string;
  readonly #createTable: boolean;
  #isThere = false;

  constructor({ dialect, table, createTable }: LockTableOptions) {
    this.#dialect = dialect;
    this.#table = table;
    this.#createTable = createTable;
  }

  /** It was seen once. */
  get isThere(): boolean {
    return this.#isThere;
  }

  /** @throws LockConfigError for what only a person can mend */
  async look(visit: Visit): Promise<void> {
    await persist(this.#dialect, visit.deadline, () => this.#look(visit));
    this.#isThere = true;
  }

  /**
   * Takes a step on it.
   *
   * @throws LockConfigError as above
   */
  async use(visit: Visit, step: () => Promise<unknown>): Promise<void> {
    await persist(this.#dialect, visit.deadline, step).catch((cause: unknown) => {
      throw this.#explained(cause);
    });
  }

  /** Somebody may have dropped it. */
  doubt(cause: unknown): void {
    if (this.#dialect.faultOf(cause) === 'no table') this.#isThere = false;
  }

  /** Looks before it creates, because a user who may not create tables may use one that is there. */
  async #look(visit: Visit): Promise<void> {
    const { columnTypes, quote, create } = this.#dialect;
    const names = columnsOf(columnTypes).map(({ name }) => quote(name));
    const probe = `SELECT ${names.join(', ')} FROM ${this.#table} WHERE 1 = 0`;
    try {
      await visit.query(probe);
    } catch (cause) {
      if (this.#dialect.faultOf(cause) !== 'no table' || !this.#createTable) throw this.#explained(cause);
      await create(visit, createTableSql(this.#table, this.#dialect)).catch((why: unknown) => {
        throw this.#explained(why);
      });
    }
  }

  #explained(cause: unknown): unknown {
    switch (this.#dialect.faultOf(cause)) {
      case 'no table':
        return new LockConfigError(
          `Expected the table ${this.#table} for locks, found none. Run the migration ` +
            `${MIGRATION}, or pass createTable: true to typeormBackend.`,
          { cause },
        );
      case 'no column':
        return new LockConfigError(
          `Expected the table ${this.#table} to have the columns of distributedLockEntity(), found another table. ` +
            `Pass another table name to typeormBackend, or drop the table if it is an old one of this package.`,
          { cause },
        );
      case 'forbidden':
        return new LockConfigError(
          `Expected the right to create and use the table ${this.#table} for locks, which the database denies. Grant ` +
            `it, or create the table with the migration ${MIGRATION} as a user who may.`,
          { cause },
        );
      default:
        return cause;
    }
  }
}
