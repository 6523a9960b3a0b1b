import { LockConfigError } from '../../../core/errors.js';
import type { Dialect, Session } from '../dialects/dialect.js';
import { retryWhileBusy } from '../requests/retry-while-busy.js';
import { columnsOf, createTableSql } from './columns.js';

interface LockTableOptions {
  readonly dialect: Dialect;
  /** The quoted name, with its schema if there is one. */
  readonly table: string;
  readonly createTable: boolean;
}

const MIGRATION =
  'CreateDistributedLock1700000000000 (for another table name distributedLockMigration({ table }))';

/** Checks that the table exists with the expected columns, or creates it. */
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

  /** Whether {@link ensureReady} has succeeded, and no statement has missed the table since. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** @throws LockConfigError if the table is missing or has other columns, or a right is missing: retrying does not help */
  async ensureReady(session: Session): Promise<void> {
    await retryWhileBusy(this.#dialect, session.timeout, () => this.#probeOrCreate(session));
    this.#isReady = true;
  }

  /**
   * Executes a step that uses the table.
   *
   * @throws LockConfigError as {@link ensureReady} does
   */
  async use(session: Session, step: () => Promise<unknown>): Promise<void> {
    await retryWhileBusy(this.#dialect, session.timeout, step).catch((cause: unknown) => {
      throw this.#toConfigError(cause);
    });
  }

  /** If the table was dropped, the next request checks and creates it again. */
  onStatementError(cause: unknown): void {
    if (this.#dialect.classifyError(cause) === 'no table') this.#isReady = false;
  }

  /** Probes before it creates: a database user without the right to create tables can use an existing one. */
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
