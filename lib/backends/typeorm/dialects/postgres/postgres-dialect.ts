import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import {
  type AnyOptions,
  CONNECT_TIMEOUT_MS,
  KEEP_ALIVE_MS,
  MAX_CONNECTIONS,
  connectOptionsOf,
  pickExtra,
  shorterTimeoutMs,
} from '../../connections/connection-options.js';
import { quoteWith } from '../../table/table-name.js';
import type { Dialect, ErrorKind } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';
import { listen } from './postgres-notifications.js';
import { createPostgresSender } from './postgres-sender.js';
import { createPostgresStatements } from './postgres-statements.js';

/** Longer than a statement of ours ever takes, shorter than anybody waits for its answer. */
const STATEMENT_TIMEOUT_MS = 5_000;
const LOCK_TIMEOUT_MS = 1_000;

/** Longer than the pause between two renewals of usual leases, so that they find an open connection. */
const IDLE_TIMEOUT_MS = 60_000;

/**
 * Our statements reach a few rows by their key, in the order of the keys. A plan that was kept from when the table was
 * small would read all of it instead, and lock rows in another order.
 */
const PLANNER_SETTINGS = ['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']
  .map((setting) => `-c ${setting}=off`)
  .concat('-c plan_cache_mode=force_generic_plan')
  .join(' ');

/** What our statements are written for. */
const SESSION_SETTINGS = '-c default_transaction_isolation=read\\ committed -c array_nulls=on';

/** What `extra` may say of how to connect. */
const CONNECT_EXTRA_OPTIONS = [
  ...['host', 'port', 'user', 'password', 'database', 'connectionString', 'stream', 'ssl', 'sslNegotiation'],
  ...['application_name', 'fallback_application_name', 'options', 'connectionTimeoutMillis', 'onConnect'],
  ...['enableChannelBinding', 'scramMaxIterations'],
];

const BOOLEAN_OID = 16;

/** Values as the server writes them, whatever parsers are set for all of the process. */
const TYPE_PARSERS = {
  getTypeParser: (oid: number) => (text: string) => (oid === BOOLEAN_OID ? text === 't' : text),
};

const ERROR_KINDS: Readonly<Record<string, ErrorKind>> = {
  '40001': 'busy', // serialization failure
  '40P01': 'busy', // deadlock
  '55P03': 'busy', // lock timeout
  '23505': 'busy', // somebody else is creating the table
  '42P07': 'busy',
  '42P01': 'no table',
  '42703': 'no column',
  '42P10': 'no column', // its key is not unique
  '42501': 'forbidden',
  '3F000': 'forbidden', // no such schema
  '0A000': 'setting refused', // RDS Proxy
  '25006': 'read only',
};

/** What poolers say of settings that come with the connection. */
const SETTING_REFUSED = /start-?up parameter|command-line option/i;

/** One of the data does not fit: it cannot be encoded, or is too large. */
const DATA_EXCEPTION = '22';

export const postgres: Dialect = {
  columnTypes: {
    // "C" compares bytes, and its index outlives upgrades of the system's collations.
    key: { type: 'text', collation: 'C' },
    holder: { type: 'text' },
    instance: { type: 'text' },
    notes: { type: 'text' },
  },
  quote: quoteWith('"'),
  connectionOptions,
  socketOf: (client) => (client as { connection?: { stream?: Socket } }).connection?.stream,
  isBroken: (client) => (client as { _queryable?: boolean })._queryable === false,
  // CREATE TABLE IF NOT EXISTS fails when two do it at once: both see no table, and the names of types are unique.
  createTable: ({ query }, ddl) =>
    query(
      `DO ${literal(`BEGIN PERFORM pg_advisory_xact_lock(hashtext('nestjs-distributed-lock')); ${ddl}; END`)}`,
    ),
  classifyError(cause) {
    const { code, message } = driverErrorOf(cause);
    if (SETTING_REFUSED.test(message)) return 'setting refused';
    if (code.startsWith(DATA_EXCEPTION)) return 'value';
    return ERROR_KINDS[code] ?? 'other';
  },
  createSender: createPostgresSender,
  listen,
  createStatements: createPostgresStatements,
};

/** A text in SQL, whatever it holds and however the server takes backslashes. */
const literal = (text: string) => `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;

type Verify = (client: EventEmitter, done: (error?: Error) => void) => void;

/**
 * Between the pool and the query runner of TypeORM a new connection has nobody who hears of its errors: one that the
 * server ends just then would end the process. What ends it shows in its socket, where we look.
 */
const ignoreErrorsAnd =
  (verify?: Verify): Verify =>
  (client, done) => {
    client.on('error', () => undefined);
    if (verify) verify(client, done);
    else done();
  };

/**
 * TypeORM takes `pg-native` where it is installed, whose clients do not tell when they have ended. A look for it that
 * fails leaves TypeORM with the JavaScript client.
 */
const withoutNative = <T extends object>(options: T): T =>
  Object.defineProperty(options, 'nativeDriver', {
    get: () => {
      throw new Error('pg-native is not used');
    },
  });

/** Poolers such as PgBouncer know no settings at start; without them our own deadline still ends every wait. */
function connectionOptions(options: DataSourceOptions) {
  const connectOptions = connectOptionsOf(options);
  const extra = pickExtra(options, CONNECT_EXTRA_OPTIONS);
  const verify = (options.extra as { verify?: Verify } | undefined)?.verify;
  const withSettings = (settings: AnyOptions) =>
    withoutNative({
      ...connectOptions,
      installExtensions: false,
      // The pool drops the connection and opens another when it is needed.
      poolErrorHandler: () => undefined,
      extra: {
        ...extra,
        max: MAX_CONNECTIONS + 1, // One of them only listens.
        min: 0,
        idleTimeoutMillis: IDLE_TIMEOUT_MS,
        keepAlive: true,
        keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
        connectionTimeoutMillis: shorterTimeoutMs(
          CONNECT_TIMEOUT_MS,
          extra['connectionTimeoutMillis'] ?? connectOptions['connectTimeoutMS'],
        ),
        verify: ignoreErrorsAnd(verify),
        types: TYPE_PARSERS,
        ...settings,
      },
    }) as unknown as DataSourceOptions;
  return [
    withSettings({
      statement_timeout: STATEMENT_TIMEOUT_MS,
      lock_timeout: LOCK_TIMEOUT_MS,
      options: [extra['options'], PLANNER_SETTINGS, SESSION_SETTINGS].filter(Boolean).join(' '),
    }),
    withSettings({ statement_timeout: undefined, lock_timeout: undefined }),
  ] as const;
}
