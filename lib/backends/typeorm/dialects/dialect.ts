import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import type { AcquireRequest, AcquisitionId, RenewRequest } from '../../../core/backend.js';
import type { AcquireResult, ReleaseResult, RenewResult } from '../../../core/backend-results.js';
import type { Session } from '../connections/session.js';
import type { LockRowSnapshot } from '../table/lock-row.js';
import type { Table, TableDialect } from '../table/table-definition.js';
import type { CommonStatements } from '../statements/common-statements.js';

/**
 * Sends one statement over a connection of the driver. The result depends on the driver; it is not a promise if the database
 * is in this process. Statements with parameters are sent often, so the sender may prepare them.
 */
export type SendStatement = (
  driverConnection: object,
  sql: string,
  parameters: readonly unknown[],
) => unknown;

/** What an error of a database means for the backend; `other` needs no special treatment. */
export type ErrorKind =
  | 'busy'
  | 'no table'
  | 'no column'
  | 'forbidden'
  | 'setting refused'
  /** The server accepts no writes, for instance because it is no longer the primary. */
  | 'read only'
  /** The database does not accept one of the values. */
  | 'value'
  | 'other';

/** Code and message of the driver's error, which TypeORM wraps in its own. */
export function driverErrorOf(cause: unknown): { code: string; message: string } {
  const { driverError = cause } = Object(cause) as { driverError?: unknown };
  const { code, errno, message } = Object(driverError) as {
    code?: unknown;
    errno?: unknown;
    message?: unknown;
  };
  return { code: String(errno ?? code), message: String(message) };
}

/**
 * Everything that differs between databases. The common part, how requests are executed and retried, is in
 * `requests/`.
 */
export interface Dialect extends TableDialect {
  /** The options of the backend's own connections, made from the user's. If the server rejects the first, the next are tried. */
  connectionOptions(options: DataSourceOptions): readonly [DataSourceOptions, ...DataSourceOptions[]];
  /** The database is in this process, and the backend uses one connection. */
  readonly isInProcess?: true;
  /** A statement leaves this process as soon as it is handed to the driver. MySQL's drivers may have to prepare it first. */
  readonly sendsAtOnce?: true;
  /** Statements that insert a lock do not fail if the primary key is another one. */
  readonly acceptsOtherKeys?: true;
  /** The first statements on every new connection. */
  readonly setupStatements?: readonly string[];
  /** How long a statement may wait for locks after it has read the clock. @default 0: it reads the clock after the wait */
  readonly longestLockWaitMs?: number;
  /** Whether the driver knows that nothing can be sent over the connection any more. */
  isBroken?(driverConnection: object): boolean;
  /** Asks the server to end the statement that runs on the connection. Resolves when it was asked, or the signal aborts. */
  cancelStatement?(driverConnection: object, signal: AbortSignal): Promise<void>;
  /** The socket to destroy if a connection is silent. The driver then treats the connection as lost and drops it. */
  socketOf(driverConnection: object): Socket | undefined;
  /** The connections of TypeORM's pool, for drivers whose pool waits for silent ones when it is closed. */
  connectionsOf?(driver: object): readonly object[];
  createSender(): SendStatement;
  /** Creates the table, also if several processes do so at once. */
  createTable(session: Session, ddl: string): Promise<unknown>;
  classifyError(cause: unknown): ErrorKind;
  /** What should be set up differently in the database, as a text for the log; `undefined` if nothing. */
  advice?(session: Session, table: Table): Promise<string | undefined>;
  /** Calls `onReleased` with each released key of the table. Resolves to `false` if notifications cannot arrive. */
  listen?(driverConnection: object, table: Table, onReleased: (key: string) => void): Promise<boolean>;
  /** Builds the statements for one table. */
  createStatements(table: Table): Statements;
}

/** What an attempt to acquire keys has resulted in. */
export interface Acquisitions {
  /** The database's clock, if the statements returned it. */
  readonly nowUs?: number | undefined;
  /** In the order of the requests; `undefined` if another transaction changed the row between two statements. */
  readonly results: readonly (AcquireResult | undefined)[];
}

/**
 * The statements of one dialect on one table. Each takes effect for each key in one atomic step, whatever it reads before or
 * after, and locks rows in the order of their keys, so that two of them cannot deadlock. No list contains a key twice.
 * Results are in the order of the requests.
 */
export interface Statements extends CommonStatements {
  /** Grants free keys, and extends the lease of a key that the holder holds already. For requests without a tick. */
  acquire(session: Session, requests: readonly AcquireRequest[], notAfterUs: number): Promise<Acquisitions>;
  renew(session: Session, requests: readonly RenewRequest[]): Promise<readonly RenewResult[]>;
  release(session: Session, requests: readonly AcquisitionId[]): Promise<readonly ReleaseResult[]>;
  readRows(session: Session, keys: readonly string[]): Promise<readonly LockRowSnapshot[]>;
  /** Removes those rows of the keys that are idle now, also if they were not when they were read. */
  removeIdle(session: Session, keys: readonly string[], memoryMs: number): Promise<void>;
}
