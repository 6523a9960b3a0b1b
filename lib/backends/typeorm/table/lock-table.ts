import { LockConfigError } from '../../../core/errors.js';
import { formatReason } from '../../../core/format.js';
import type { Dialect } from '../dialects/dialect.js';
import { type Session, retryWhileBusy } from '../connections/session.js';
import { throwIfKeyIsNotUnique } from './primary-key.js';
import { type Table, columnsOf, createTableSql } from './table-definition.js';
import { MIGRATION, missingTableError, otherTableError, vanishedError } from './table-errors.js';

interface LockTableParts {
  readonly dialect: Dialect;
  readonly table: Table;
  readonly createTable: boolean;
}

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

  /** @throws LockConfigError if the table is missing or has other columns or another key, or a right is missing: retrying does not help */
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
      if (dialect.acceptsOtherKeys) await throwIfKeyIsNotUnique((sql) => session.query(sql), table.inSql);
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
        return otherTableError(table, cause);
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
