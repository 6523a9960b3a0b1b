import type { DataSourceOptions } from 'typeorm';
import { connectOptionsOf } from '../../connections/connection-options.js';
import { quoteWith } from '../../table/table-name.js';
import type { Dialect } from '../dialect.js';
import { sqliteAdvice } from './sqlite-advice.js';
import { classifyError } from './sqlite-errors.js';
import { createSqliteSender } from './sqlite-sender.js';
import { createSqliteStatements } from './sqlite-statements.js';
import { inTransaction } from './sqlite-transaction.js';

/** The driver blocks the whole process while it waits for a lock, so it gets 5 ms; the backend pauses between attempts. */
const BUSY_TIMEOUT_MS = 5;

/** SQLite from 3.35, through better-sqlite3 or a driver with the same interface. */
export const sqlite: Dialect = {
  columnTypes: {
    key: { type: 'text' },
    holder: { type: 'text' },
    instance: { type: 'text' },
    notes: { type: 'text' },
  },
  // Without a separate index a grant writes half as many pages.
  tableOptions: 'WITHOUT ROWID',
  quote: quoteWith('"'),
  connectionOptions: (options) => [
    {
      ...connectOptionsOf(options),
      timeout: BUSY_TIMEOUT_MS,
    } as unknown as DataSourceOptions,
  ],
  // Set again here, because a driver may ignore the option, and the user's `prepareDatabase` may have changed it.
  setupStatements: [`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`, 'PRAGMA query_only = OFF'],
  isInProcess: true,
  socketOf: () => undefined,
  createSender: createSqliteSender,
  createTable: (session, ddl) => inTransaction(session, () => session.run(ddl)),
  classifyError,
  advice: sqliteAdvice,
  createStatements: createSqliteStatements,
};
