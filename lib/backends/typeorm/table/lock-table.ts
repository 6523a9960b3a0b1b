import { LockConfigError } from '../../../core/errors.js';
import { formatReason } from '../../../core/format.js';
import type { Dialect } from '../dialects/dialect.js';
import { type Session, retryWhileBusy } from '../connections/session.js';
import { type Table, columnsOf, createTableSql } from './table-definition.js';

interface LockTableParts {
  readonly dialect: Dialect;
  readonly table: Table;
  readonly createTable: boolean;
}

const MIGRATION =
  'CreateDistributedLock1700000000000 (for another table name distributedLockMigration({ table }))';

/** Checks that the table exists with the expected columns, or creates it. */
export class LockTable {
  readonly #parts: LockTableParts;
  /** Whether {@link ensureReady} has succeeded, and no statement has missed the table since. */
  #isReady = false;
  /** Whether {@link ensureReady} has ever succeeded. */
  #hasExisted = false;

  constructor(parts: LockTableParts) {
    this.#parts = parts;
  }

  /** @throws LockConfigError if the table is missing or has other columns, or a right is missing: retrying does not help */
  async ensureReady(session: Session): Promise<void> {
    if (this.#isReady) return;
    await this.use(session, () => this.#probeOrCreate(session));
    this.#isReady = true;
    this.#hasExisted = true;
  }

  /**
   * Executes a step that uses the table.
   *
   * @throws LockConfigError as {@link ensureReady} does
   */
  async use(session: Session, step: () => Promise<unknown>): Promise<void> {
    try {
      await retryWhileBusy(this.#parts.dialect, session.timeout, step);
    } catch (cause) {
      throw this.#toConfigError(cause);
    }
  }

  /** If a statement has missed the table, the next request checks whether it is there. */
  onStatementError(cause: unknown): void {
    if (this.#parts.dialect.classifyError(cause) === 'no table') this.#isReady = false;
  }

  /**
   * Probes before it creates: a database user without the right to create tables can use an existing one. A table that has
   * vanished may still be in use elsewhere, for example in another schema of the `search_path`. So it is not created again.
   */
  async #probeOrCreate(session: Session): Promise<void> {
    const { dialect, table, createTable } = this.#parts;
    const hasExisted = this.#hasExisted;
    const names = columnsOf(dialect.columnTypes).map(({ name }) => dialect.quote(name));
    try {
      await session.query(`SELECT ${names.join(', ')} FROM ${table.inSql} WHERE 1 = 0`);
    } catch (cause) {
      if (dialect.classifyError(cause) !== 'no table') throw cause;
      // Another connection may have found or created it since this one asked.
      if (this.#isReady) return;
      if (!createTable || hasExisted) throw cause;
      await dialect.createTable(session, createTableSql(table, dialect));
    }
  }

  #toConfigError(cause: unknown): unknown {
    const table = this.#parts.table.inSql;
    switch (this.#parts.dialect.classifyError(cause)) {
      case 'no table':
        if (this.#hasExisted) return vanishedError(table, cause);
        return missingTableError(table, cause);
      case 'no column':
        return new LockConfigError(
          `Expected the table ${table} to have the columns of distributedLockEntity(), found another table. ` +
            `Pass another table name to typeormBackend, or drop the table if it is an old one of this package.`,
          { cause },
        );
      case 'forbidden':
        return new LockConfigError(
          `Expected the right to create and use the table ${table} for locks, which the database denies ` +
            `(${formatReason(cause)}). Grant it, or create the table with the migration ${MIGRATION} as a user who may.`,
          { cause },
        );
      default:
        return cause;
    }
  }
}

export const missingTableError = (table: string, cause: unknown) =>
  new LockConfigError(
    `Expected the table ${table} for locks, found none. Run the migration ` +
      `${MIGRATION}, or pass createTable: true to typeormBackend.`,
    { cause },
  );

const vanishedError = (table: string, cause: unknown) =>
  new LockConfigError(
    `Expected the table ${table} for locks, which this process has used before, but it has vanished. It was dropped or ` +
      `moved, or the search_path has changed, for example by another client of a connection pooler. It is not created ` +
      `again, because other processes may use it elsewhere. Restore it, or stop all replicas and start them again. Set ` +
      `its schema: typeormBackend({ table: 'schema.table' }).`,
    { cause },
  );
