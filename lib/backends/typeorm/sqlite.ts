import type { DataSourceOptions } from 'typeorm';
import { sqliteAdvice } from './sqlite-advice.js';
import type { Dialect } from './dialect.js';
import { masterOf } from './own-options.js';
import { faultOf } from './sqlite-fault.js';
import { sqliteSender } from './sqlite-sender.js';
import { on } from './sqlite-statements.js';
import { inTransaction } from './sqlite-transaction.js';
import { quotedBy } from './table-name.js';

/** The driver waits for a lock by blocking the whole process, so it hardly may; we wait in between. */
const BLOCKING_LIMIT_MS = 5;

/** SQLite from 3.35, through better-sqlite3 or what speaks like it. */
export const sqlite: Dialect = {
  columnTypes: {
    key: { type: 'text' },
    holder: { type: 'text' },
    instance: { type: 'text' },
    notes: { type: 'text' },
  },
  // Without an index beside the table a grant writes half as many pages.
  tableOptions: 'WITHOUT ROWID',
  quote: quotedBy('"'),
  ownOptions: (options) => [
    {
      ...masterOf(options),
      timeout: BLOCKING_LIMIT_MS,
    } as unknown as DataSourceOptions,
  ],
  // Once more, because a driver may not know the option, or the user's `prepareDatabase` may have set it.
  greeting: [`PRAGMA busy_timeout = ${BLOCKING_LIMIT_MS}`, 'PRAGMA query_only = OFF'],
  isInProcess: true,
  socketOf: () => undefined,
  sender: sqliteSender,
  create: (visit, ddl) => inTransaction(visit, () => visit.run(ddl)),
  faultOf,
  advice: sqliteAdvice,
  on,
};
