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
import { quoteWith } from '../../table/table-name.js';
import type { Dialect, ErrorKind } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';
import { createMysqlSender } from './mysql-sender.js';
import { createMysqlStatements } from './mysql-statements.js';

/** A key of 512 UTF-16 units of at most 3 bytes, a namespace of 64 of at most 9, and what joins them: at most 2120. */
const MAX_KEY_BYTES = 2_304;

const ERROR_KINDS: Readonly<Record<string, ErrorKind>> = {
  1213: 'busy', // deadlock, and a lost certification on Galera
  1205: 'busy', // lock timeout
  1020: 'busy', // changed since the snapshot
  1146: 'no table',
  1054: 'no column',
  1044: 'forbidden',
  1142: 'forbidden',
  1036: 'read only', // the table is
  1047: 'read only', // no statements are taken: of Galera, by a node that has lost the majority
  1290: 'read only', // an option of the server prevents it
  1792: 'read only', // the transaction is
  1836: 'read only', // the server is
  1874: 'read only', // InnoDB is
  1264: 'value', // out of range
  1366: 'value', // not to be encoded
  1406: 'value', // too long
};

/** What `extra` may say of how to connect. */
const CONNECT_EXTRA_OPTIONS = [
  ...['host', 'port', 'uri', 'socketPath', 'localAddress', 'stream', 'ssl', 'database', 'user'],
  ...['password', 'password1', 'password2', 'password3', 'passwordSha1', 'authPlugins', 'authSwitchHandler'],
  ...['enableCleartextPlugin', 'insecureAuth', 'compress', 'connectAttributes', 'connectTimeout', 'flags'],
  'disableEval',
];

interface PooledDriver {
  readonly pool?: { readonly _allConnections?: { toArray?(): readonly object[] } };
}

/** MySQL from 8.0, and MariaDB, which may be used under that name too. */
export const mysql: Dialect = {
  columnTypes: {
    // Binary, because every collation of text takes some different texts for equal: `utf8mb4_bin` ignores spaces at the end.
    key: { type: 'varbinary', length: MAX_KEY_BYTES },
    holder: { type: 'varbinary', length: 255 },
    instance: { type: 'varchar', length: 255, charset: 'utf8mb4', collation: 'utf8mb4_bin' },
    notes: { type: 'mediumtext', charset: 'utf8mb4', collation: 'utf8mb4_bin' },
  },
  // Other formats of rows index no more than 767 bytes of a key.
  tableOptions: 'ENGINE=InnoDB ROW_FORMAT=DYNAMIC',
  quote: quoteWith('`'),
  connectionOptions: (options) => [connectionOptions(options)],
  setupStatements: [
    // A server may have turned autocommit off, and lets a statement wait 50 s for a row and a day or more for a table. Modes
    // such as EMPTY_STRING_IS_NULL or SIMULTANEOUS_ASSIGNMENT change what our statements mean.
    `SET SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1,
    SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'`,
    // The usual one, which every format of the binary log takes.
    `SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ`,
  ],
  socketOf: (driverConnection) => (driverConnection as { stream?: Socket }).stream,
  connectionsOf: (driver) => (driver as PooledDriver).pool?._allConnections?.toArray?.() ?? [],
  isBroken(driverConnection) {
    const { _fatalError, _protocolError, _closing } = driverConnection as Readonly<Record<string, unknown>>;
    return [_fatalError, _protocolError, _closing].some(Boolean);
  },
  createSender: createMysqlSender,
  createTable: ({ query }, ddl) => query(ddl),
  classifyError: (cause) => ERROR_KINDS[driverErrorOf(cause).code] ?? 'other',
  createStatements: (table) => createMysqlStatements(table, { returning: false }),
};

/** From 10.5. */
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
      connectionLimit: MAX_CONNECTIONS,
      waitForConnections: true,
      queueLimit: 0,
      enableKeepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
      resetOnRelease: false, // It would undo the greeting.
      flags: withFoundRows(extra['flags'] ?? connectOptions['flags']),
    },
  } as unknown as DataSourceOptions;
}

/** Without FOUND_ROWS an UPDATE that changes no value counts as none, and a renewal as lost. */
const withFoundRows = (flags: unknown): readonly string[] =>
  String((flags ?? '') as string | readonly string[])
    .toUpperCase()
    .split(/[\s,]+/)
    .filter((flag) => flag !== '' && flag !== '-FOUND_ROWS');
