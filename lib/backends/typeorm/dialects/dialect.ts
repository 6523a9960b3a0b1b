import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import type {
  AcquireRequest,
  Claim,
  KeyCleanUp,
  ReleaseResult,
  RenewRequest,
  RenewResult,
} from '../../../core/backend.js';
import type { Timeout } from '../requests/timeout.js';
import type { TableDialect } from '../table/columns.js';
import type { GrantOutcome, LockRow, LockRowSnapshot } from '../table/lock-row.js';

/**
 * Sends one statement over a connection of the driver. The result depends on the driver; it is not a promise if the database
 * is in this process. Statements with parameters are sent often, so the sender may prepare them.
 */
export type SendStatement = (
  driverConnection: object,
  sql: string,
  parameters: readonly unknown[],
) => unknown;

/** Sends one statement over the connection of the session. */
export type Query = (sql: string, parameters?: readonly unknown[]) => Promise<unknown>;

/** One use of a connection, until its timeout ends. */
export interface Session {
  readonly timeout: Timeout;
  /** Throws if the timeout or the connection has ended meanwhile, so that a request can be reported as never sent. */
  throwIfEnded(): void;
  /** Rejects when the timeout ends; the connection is then destroyed. */
  readonly query: Query;
  /** Sends without a timeout, and synchronously if the driver is synchronous. */
  run(sql: string, parameters?: readonly unknown[]): unknown;
}

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

/** The table of the locks. */
export interface Table {
  readonly name: string;
  /** The quoted name, with its schema if there is one. */
  readonly inSql: string;
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
  /** The first statements on every new connection. */
  readonly setupStatements?: readonly string[];
  /** Whether the driver knows that nothing can be sent over the connection any more. */
  isBroken?(driverConnection: object): boolean;
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

/** The outcomes of an attempt to grant keys, in the order of the requests. */
export interface GrantOutcomes {
  /** The database's clock, if the result contains it. */
  readonly nowUs?: number | undefined;
  readonly outcomes: readonly GrantOutcome[];
}

/**
 * The statements of one dialect on one table. Each takes effect for each key in one atomic step, whatever it reads before or
 * after, and locks rows in the order of their keys, so that two of them cannot deadlock. No list contains a key twice.
 * Results are in the order of the requests.
 */
export interface Statements {
  /** Grants free keys, and extends the lease of a key that the holder holds already. For requests without a tick. */
  acquire(session: Session, requests: readonly AcquireRequest[], notAfterUs: number): Promise<GrantOutcomes>;
  renew(session: Session, requests: readonly RenewRequest[]): Promise<readonly RenewResult[]>;
  release(session: Session, claims: readonly Claim[]): Promise<readonly ReleaseResult[]>;
  /** `fencingToken` may be any token of the current grant. */
  forceRelease(session: Session, key: string, fencingToken: bigint): Promise<boolean>;
  readRow(session: Session, key: string): Promise<LockRowSnapshot>;
  /** Inserts a free row for the key if it has none. */
  insertMissing(session: Session, key: string): Promise<void>;
  /** Grants a free key with its tick if the row has not changed. Resolves to the fencing token, otherwise `undefined`. */
  claim(session: Session, request: AcquireRequest, conditions: ClaimConditions): Promise<bigint | undefined>;
  /** Writes the tick as the newest claimed one if the row has none. Resolves to whether it did. */
  register(session: Session, key: string, tickMs: number): Promise<boolean>;
  /** Releases the key of a run that has ended, and marks its tick as ended. */
  releaseEndedRun(session: Session, claim: Claim): Promise<ReleaseResult>;
  appendHistory(session: Session, key: string, entry: string): Promise<void>;
  /** Reads the lines that {@link appendHistory} has written, as one text. */
  readHistory(session: Session, key: string): Promise<string>;
  /**
   * Deletes the free rows from `fromKey` to before `beforeKey`. A row whose run has no recorded end is deleted only
   * `afterMs` after the run was last known to be active.
   */
  cleanUp(session: Session, keys: KeyCleanUp): Promise<unknown>;
}

/** The conditions under which a tick is granted. */
export interface ClaimConditions {
  /** The row as it was read. */
  readonly row: LockRow;
  readonly attempt: number;
  /** In µs of the database's clock. */
  readonly notAfterUs: number;
}
