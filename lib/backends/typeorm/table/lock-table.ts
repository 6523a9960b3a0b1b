import { LockConfigError } from '../../../core/errors.js';
import { columnsOf, createTableSql } from './columns.js';
import type { Dialect, Session } from '../dialects/dialect.js';
import { retryWhileBusy } from '../requests/retry-while-busy.js';

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
  #isReady = false;

  constructor({ dialect, table, createTable }: LockTableOptions) {
    this.#dialect = dialect;
    this.#table = table;
    this.#createTable = createTable;
  }

  /** It was seen once. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** @throws LockConfigError for what only a person can mend */
  async ensureReady(session: Session): Promise<void> {
    await retryWhileBusy(this.#dialect, session.timeout, () => this.#probeOrCreate(session));
    this.#isReady = true;
  }

  /**
   * Takes a step on it.
   *
   * @throws LockConfigError as above
   */
  async use(session: Session, step: () => Promise<unknown>): Promise<void> {
    await retryWhileBusy(this.#dialect, session.timeout, step).catch((cause: unknown) => {
      throw this.#toConfigError(cause);
    });
  }

  /** Somebody may have dropped it. */
  onStatementError(cause: unknown): void {
    if (this.#dialect.classifyError(cause) === 'no table') this.#isReady = false;
  }

  /** Looks before it creates, because a user who may not create tables may use one that is there. */
  async #probeOrCreate(session: Session): Promise<void> {
    const { columnTypes, quote, createTable } = this.#dialect;
    const names = columnsOf(columnTypes).map(({ name }) => quote(name));
    const probe = `SELECT ${names.join(', ')} FROM ${this.#table} WHERE 1 = 0`;
    try {
      await session.query(probe);
    } catch (cause) {
      if (this.#dialect.classifyError(cause) !== 'no table' || !this.#createTable)
        throw this.#toConfigError(cause);
      await createTable(session, createTableSql(this.#table, this.#dialect)).catch((why: unknown) => {
        throw this.#toConfigError(why);
      });
    }
  }

  #toConfigError(cause: unknown): unknown {
    switch (this.#dialect.classifyError(cause)) {
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
