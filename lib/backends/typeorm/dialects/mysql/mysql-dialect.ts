import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import {
  CONNECT_TIMEOUT_MS,
  KEEP_ALIVE_MS,
  MAX_CONNECTIONS,
  connectOptionsOf,
  omit,
  pickExtra,
  shorterTimeoutMs,
} from '../../connections/connection-options.js';
import { quoteWith } from '../../table/table-definition.js';
import { type Dialect, type ErrorKind, type SendStatement, driverErrorOf } from '../dialect.js';
import { killConnection } from './mysql-kill.js';
import { createMysqlStatements } from './mysql-statements.js';

/** At most 2120 bytes are needed: a key of 512 UTF-16 units of 3 bytes, a namespace of 64 units of 9 bytes, and a separator. */
const MAX_KEY_BYTES = 2_304;

/** For the table, and then for the row. */
const LOCK_WAIT_S = 1;

const ERROR_KINDS: Readonly<Record<string, ErrorKind>> = {
  1213: 'busy', // deadlock; on Galera also a failed certification
  1205: 'busy', // lock timeout
  1020: 'busy', // row changed since the snapshot
  1146: 'no table',
  1054: 'no column',
  1176: 'no column', // no primary key
  1364: 'no column', // one more that needs a value
  1044: 'forbidden',
  1142: 'forbidden',
  1036: 'read only', // table
  1047: 'read only', // Galera: the node is not part of the majority and executes no statements
  1290: 'read only', // by an option of the server
  1792: 'read only', // transaction
  1836: 'read only', // server
  1874: 'read only', // InnoDB
  1264: 'value', // out of range
  1366: 'value', // cannot be encoded
  1406: 'value', // too long
};

/** The options of `extra` that say how to connect. */
const CONNECT_EXTRA_OPTIONS = [
  ...['host', 'port', 'uri', 'socketPath', 'localAddress', 'stream', 'ssl', 'database', 'user'],
  ...['password', 'password1', 'password2', 'password3', 'passwordSha1', 'authPlugins', 'authSwitchHandler'],
  ...['enableCleartextPlugin', 'insecureAuth', 'compress', 'connectAttributes', 'connectTimeout', 'flags'],
  'disableEval',
];

interface PooledDriver {
  readonly pool?: { readonly _allConnections?: { toArray?(): readonly object[] } };
}

/** MySQL from 8.0; also MariaDB, which may be configured as `mysql`. */
export const mysql: Dialect = {
  columnTypes: {
    // Binary, because text collations treat some different texts as equal: `utf8mb4_bin` ignores trailing spaces.
    key: { type: 'varbinary', length: MAX_KEY_BYTES },
    holder: { type: 'varbinary', length: 255 },
    instance: { type: 'varchar', length: 255, charset: 'utf8mb4', collation: 'utf8mb4_bin' },
    notes: { type: 'mediumtext', charset: 'utf8mb4', collation: 'utf8mb4_bin' },
  },
  // Other row formats index at most 767 bytes of a key.
  tableOptions: 'ENGINE=InnoDB ROW_FORMAT=DYNAMIC',
  quote: quoteWith('`'),
  connectionOptions: (options) => [connectionOptions(options)],
  setupStatements: [
    // A server may have autocommit turned off. By default a statement waits 50 s for a row, and a day or more for a table.
    // Modes such as EMPTY_STRING_IS_NULL or SIMULTANEOUS_ASSIGNMENT change what the statements mean.
    `SET SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = ${LOCK_WAIT_S}, SESSION lock_wait_timeout = ${LOCK_WAIT_S},
    SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'`,
    // The default of MySQL, which works with every format of the binary log.
    `SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ`,
    // A server may refuse statements that read many rows, end a SELECT after a number of rows, or a statement after a time, even
    // if it waits for a row. DEFAULT would be its value. The first comment is for MariaDB, the second one for MySQL.
    `SET SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1,
    SESSION sql_select_limit = 18446744073709551615 /*M!100101 , SESSION max_statement_time = 0 */
    /*!50708 , SESSION max_execution_time = 0 */`,
  ],
  // The wait for a row may last a second longer, because MySQL checks it once a second.
  longestLockWaitMs: (LOCK_WAIT_S + LOCK_WAIT_S + 1) * 1_000,
  socketOf: (driverConnection) => (driverConnection as { stream?: Socket }).stream,
  connectionsOf: (driver) => (driver as PooledDriver).pool?._allConnections?.toArray?.() ?? [],
  isBroken(driverConnection) {
    const { _fatalError, _protocolError, _closing } = driverConnection as Readonly<Record<string, unknown>>;
    return [_fatalError, _protocolError, _closing].some(Boolean);
  },
  cancelStatement: killConnection,
  createSender: () => send,
  createTable: ({ query }, ddl) => query(ddl),
  acceptsOtherKeys: true,
  classifyError: (cause) => ERROR_KINDS[driverErrorOf(cause).code] ?? 'other',
  createStatements: (table) => createMysqlStatements(table, { returning: false }),
};

/** MariaDB from 10.5, which supports `INSERT … RETURNING`. */
export const mariadb: Dialect = {
  ...mysql,
  createStatements: (table) => createMysqlStatements(table, { returning: true }),
};

function connectionOptions(options: DataSourceOptions): DataSourceOptions {
  const connectOptions = connectOptionsOf(options);
  const extra = pickExtra(options, CONNECT_EXTRA_OPTIONS);
  return {
    ...connectOptions,
    connectTimeout: shorterTimeoutMs(
      CONNECT_TIMEOUT_MS,
      extra['connectTimeout'] ?? connectOptions['connectTimeout'],
    ),
    supportBigNumbers: true,
    bigNumberStrings: true,
    extra: {
      ...omit(extra, ['connectTimeout']),
      // As many again that wait until their statement is cancelled, and those that ask for it.
      connectionLimit: 3 * MAX_CONNECTIONS,
      waitForConnections: true,
      queueLimit: 0,
      enableKeepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
      resetOnRelease: false, // A reset would undo the setup statements.
      flags: withFoundRows(extra['flags'] ?? connectOptions['flags']),
    },
  } as unknown as DataSourceOptions;
}

/** Without FOUND_ROWS an UPDATE that changes no value counts no row, so a renewal would count as lost. */
const withFoundRows = (flags: unknown): readonly string[] =>
  String((flags ?? '') as string | readonly string[])
    .toUpperCase()
    .split(/[\s,]+/)
    .filter((flag) => flag !== '' && flag !== '-FOUND_ROWS');

type Callback = (error: Error | null, outcome: unknown) => void;

/** The used part of a `mysql2` connection. `mysql`, which TypeORM 0.3 supports too, has no prepared statements. */
interface Mysql2Connection {
  query(sql: string, parameters: readonly unknown[], done: Callback): void;
  execute?(sql: string, parameters: readonly unknown[], done: Callback): void;
}

/** Too many prepared statements; a statement that cannot be prepared; a prepared statement that the server has dropped. */
const PREPARE_ERROR_CODES = ['1461', '1295', '1243', '1615'];

/** Prepares statements if possible, so that the server parses each text once for each connection. */
const send: SendStatement = async (driverConnection, sql, parameters) => {
  const client = driverConnection as Mysql2Connection;
  const sendBy = (method: 'query' | 'execute') =>
    new Promise((resolve, reject) => {
      client[method]?.(sql, parameters, (error, outcome) => {
        if (error) reject(error);
        else resolve(outcome);
      });
    });
  if (parameters.length === 0 || !client.execute) return sendBy('query');
  try {
    return await sendBy('execute');
  } catch (cause) {
    if (!PREPARE_ERROR_CODES.includes(driverErrorOf(cause).code)) throw cause;
    // Sending it again is safe: these errors are raised before the statement takes effect.
    return await sendBy('query');
  }
};
