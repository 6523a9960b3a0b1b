import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { type Table, quoteWith } from '../../table/table-definition.js';
import { type Dialect, type ErrorKind, type SendStatement, driverErrorOf } from '../dialect.js';
import type { Session } from '../../connections/session.js';
import { cancelStatement } from './postgres-cancel.js';
import { connectionOptions } from './postgres-connection-options.js';
import { channelNameOf, createPostgresStatements } from './postgres-statements.js';

const ERROR_KINDS: Readonly<Record<string, ErrorKind>> = {
  '40001': 'busy', // serialization failure
  '40P01': 'busy', // deadlock
  '55P03': 'busy', // lock timeout
  '23505': 'busy', // another process is creating the table
  '42P07': 'busy', // another process has created the table
  '42P01': 'no table',
  '42703': 'no column',
  '42P10': 'no column', // the column `key` is not unique
  '42501': 'forbidden',
  '3F000': 'forbidden', // the schema does not exist
  '0A000': 'setting refused', // RDS Proxy
  '25006': 'read only',
};

/** How poolers reject settings in the startup message. */
const SETTING_REFUSED = /start-?up parameter|command-line option/i;

/** The class of errors about a value that cannot be encoded or is too large. */
const DATA_EXCEPTION = '22';

const quote = quoteWith('"');

export const postgres: Dialect = {
  columnTypes: {
    // "C" compares bytes, and its index stays valid when the system's collations are upgraded.
    key: { type: 'text', collation: 'C' },
    holder: { type: 'text' },
    instance: { type: 'text' },
    notes: { type: 'text' },
  },
  quote,
  connectionOptions,
  cancelStatement,
  socketOf: (client) => (client as { connection?: { stream?: Socket } }).connection?.stream,
  isBroken: (client) => (client as { _queryable?: boolean })._queryable === false,
  // CREATE TABLE IF NOT EXISTS fails if two sessions run it at once: neither sees a table, and type names are unique.
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
  sendsAtOnce: true,
  createSender,
  advice,
  listen,
  createStatements: createPostgresStatements,
};

/** Quotes any text as a literal, whatever `standard_conforming_strings` says about backslashes. */
const literal = (text: string) => `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;

/** The used part of a `pg` client. */
interface PgClient {
  readonly processID: number;
  on(event: 'notification', listener: (notice: { channel: string; payload?: string }) => void): void;
  query(
    query: string | { name?: string; text: string; values?: readonly unknown[] },
  ): Promise<{ rows: unknown[] }>;
}

/** Behind a pooler the server's connection changes: the name does not exist there, or exists already. */
const NAME_ERROR_CODES = ['26000', '42P05'];

/**
 * Names statements, so that the server parses and plans each text once for each connection. After the first error that shows
 * a pooler without support for named statements, sends all of them unnamed.
 */
function createSender(): SendStatement {
  const names = new Map<string, string>();
  let canNameStatements = true;
  const statementNameOf = (text: string) => {
    // The same in every process: behind a pooler, two processes may use one server connection.
    const name = names.get(text) ?? `lock_${createHash('sha1').update(text).digest('hex')}`;
    names.set(text, name);
    return name;
  };
  return async (driverConnection, text, values) => {
    const client = driverConnection as PgClient;
    if (values.length === 0 || !canNameStatements) return (await client.query({ text, values })).rows;
    try {
      return (await client.query({ name: statementNameOf(text), text, values })).rows;
    } catch (cause) {
      if (!NAME_ERROR_CODES.includes(driverErrorOf(cause).code)) throw cause;
      canNameStatements = false;
      // Sending it again is safe: these errors are raised before the statement takes effect.
      return (await client.query({ text, values })).rows;
    }
  };
}

const READ_PROCESS_ID = 'SELECT pg_backend_pid() AS pid, current_schema() AS schema';

/** A pooler is detected by the process ID that it reports, which is not that of the server process. */
const isPooled = ({ processID }: PgClient, [row]: readonly { readonly pid: string }[]) =>
  row?.pid !== String(processID);

/** Advises a schema behind a pooler, where another client may have set the `search_path` of the server's connection. */
async function advice({ query, driverConnection }: Session, { name, inSql }: Table) {
  if (inSql !== quote(name)) return undefined;
  const rows = (await query(READ_PROCESS_ID)) as [{ pid: string; schema: string | null }];
  if (!isPooled(driverConnection as PgClient, rows)) return undefined;
  return (
    'The locks are used through a connection pooler, and their table has no schema. So each statement searches the table ' +
    'in the search_path of the connection that the pooler chooses, which another client of the pooler may have changed. ' +
    'Replicas that find different tables do not exclude each other. Set the schema of the table: ' +
    `typeormBackend({ dataSource, table: '${rows[0].schema ?? 'schema'}.${name}' }). ` +
    'If this is not the schema of the table that is in use, change it while no replica runs.'
  );
}

/**
 * Listens for released keys. Returns `false` behind a pooler, where a notification would reach whichever client uses the
 * server's connection at that moment.
 */
async function listen(
  driverConnection: object,
  table: Table,
  onReleased: (key: string) => void,
): Promise<boolean> {
  const client = driverConnection as PgClient;
  const { rows } = await client.query(READ_PROCESS_ID);
  if (isPooled(client, rows as { pid: string }[])) return false;
  const channel = channelNameOf(table);
  client.on('notification', (notice) => {
    if (notice.channel === channel && notice.payload) onReleased(notice.payload);
  });
  await client.query(`LISTEN "${channel}"`);
  return true;
}
