import type { EventEmitter } from 'node:events';
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
import { rememberStream } from './postgres-cancel.js';

/** Longer than any statement of the backend takes, and shorter than callers wait for its result. */
const STATEMENT_TIMEOUT_MS = 5_000;
const LOCK_TIMEOUT_MS = 1_000;

/** Longer than the pause between two renewals of a usual lease, so that renewals find an open connection. */
const IDLE_TIMEOUT_MS = 60_000;

/**
 * The statements access a few rows by key, in the order of the keys. A cached plan from the time when the table was small
 * would read the whole table instead, and lock rows in another order.
 */
const PLANNER_SETTINGS = ['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']
  .map((setting) => `-c ${setting}=off`)
  .concat('-c plan_cache_mode=force_generic_plan')
  .join(' ');

/** The settings that the statements rely on. */
const SESSION_SETTINGS = '-c default_transaction_isolation=read\\ committed -c array_nulls=on';

/** The options of `extra` that say how to connect. */
const CONNECT_EXTRA_OPTIONS = [
  ...['host', 'port', 'user', 'password', 'database', 'connectionString', 'stream', 'ssl', 'sslNegotiation'],
  ...['application_name', 'fallback_application_name', 'options', 'connectionTimeoutMillis', 'onConnect'],
  ...['enableChannelBinding', 'scramMaxIterations'],
];

const BOOLEAN_OID = 16;

/** Returns values as the server sends them, whatever parsers the process has set globally. */
const TYPE_PARSERS = {
  getTypeParser: (oid: number) => (text: string) => (oid === BOOLEAN_OID ? text === 't' : text),
};

interface Client extends EventEmitter {
  binary?: boolean;
}

type Verify = (client: Client, done: (error?: Error) => void) => void;

/**
 * Between the pool and TypeORM's query runner a new connection has no listener for errors, so an error at that moment would
 * end the process. The listener may ignore it: the socket shows that the connection has ended. Remembers the stream for a
 * request to end a statement.
 */
const prepareClient =
  (stream: unknown, verify?: Verify): Verify =>
  (client, done) => {
    client.on('error', () => undefined);
    // The parsers read texts, also if the process has set `pg.defaults.binary`.
    client.binary = false;
    rememberStream(client, stream);
    if (verify) verify(client, done);
    else done();
  };

/**
 * TypeORM uses `pg-native` if it is installed, but its clients do not report their end. When reading `nativeDriver` throws,
 * TypeORM uses the JavaScript client.
 */
const withoutNative = <T extends object>(options: T): T =>
  Object.defineProperty(options, 'nativeDriver', {
    get: () => {
      throw new Error('pg-native is not used');
    },
  });

/**
 * With settings, and without them for poolers such as PgBouncer, which reject settings at startup. Without the server's
 * timeouts each statement still limits its wait for rows, and the session's own timeout ends every wait.
 */
export function connectionOptions(options: DataSourceOptions) {
  const connectOptions = connectOptionsOf(options);
  const extra = pickExtra(options, CONNECT_EXTRA_OPTIONS);
  const verify = (options.extra as { verify?: Verify } | undefined)?.verify;
  const withSettings = (settings: AnyOptions) =>
    withoutNative({
      ...connectOptions,
      installExtensions: false,
      // Nothing to do: the pool drops the connection, and opens another when one is needed.
      poolErrorHandler: () => undefined,
      extra: {
        ...extra,
        // One more for notifications, and as many again that wait until their statement is cancelled.
        max: 2 * MAX_CONNECTIONS + 1,
        min: 0,
        idleTimeoutMillis: IDLE_TIMEOUT_MS,
        keepAlive: true,
        keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
        connectionTimeoutMillis: shorterTimeoutMs(
          CONNECT_TIMEOUT_MS,
          extra['connectionTimeoutMillis'] ?? connectOptions['connectTimeoutMS'],
        ),
        verify: prepareClient(extra['stream'], verify),
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
