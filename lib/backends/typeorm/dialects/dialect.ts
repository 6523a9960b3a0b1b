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
 * Sends one statement over a connection of the driver's own. What comes back depends on the driver, and is no promise
 * where the database lives in this process. What has parameters is sent often, and may be kept prepared.
 */
export type SendStatement = (
  driverConnection: object,
  sql: string,
  parameters: readonly unknown[],
) => unknown;

/** Sends one statement over the connection at hand. */
export type Query = (sql: string, parameters?: readonly unknown[]) => Promise<unknown>;

/** One connection, and how long it may be used. */
export interface Session {
  readonly timeout: Timeout;
  /** For what must not be sent over a connection that has ended meanwhile. */
  throwIfEnded(): void;
  /** Rejects when the deadline passes, and the connection is then given up. */
  readonly query: Query;
  /** The same without a deadline, and at once where the driver is synchronous. */
  run(sql: string, parameters?: readonly unknown[]): unknown;
}

/** What an error of a database means to us; `other` needs no special care. */
export type ErrorKind =
  | 'busy'
  | 'no table'
  | 'no column'
  | 'forbidden'
  | 'setting refused'
  /** The server takes no writes any more, as one that was the primary until lately. */
  | 'read only'
  /** It is one of the values that the database does not take. */
  | 'value'
  | 'other';

/** The table of the locks. */
export interface Table {
  readonly name: string;
  /** As SQL knows it. */
  readonly inSql: string;
}

/**
 * All that differs between databases. How locks are granted, refused and tried again stands elsewhere, once.
 */
export interface Dialect extends TableDialect {
  /** The options of our own connections, made from the user's; where the first are refused, the next are tried. */
  connectionOptions(options: DataSourceOptions): readonly [DataSourceOptions, ...DataSourceOptions[]];
  /** The database lives in this process and has one connection. */
  readonly isInProcess?: true;
  /** Statements that are sent first on every new connection. */
  readonly setupStatements?: readonly string[];
  /** The driver itself knows that nothing can be sent over it any more. */
  isBroken?(driverConnection: object): boolean;
  /** What to destroy to be rid of a silent connection. Its driver takes it for a lost one and forgets it. */
  socketOf(driverConnection: object): Socket | undefined;
  /** Those of TypeORM's pool, where it waits for the silent ones when it is closed. */
  connectionsOf?(driver: object): readonly object[];
  createSender(): SendStatement;
  /** Creates a table, also when several processes try it at once. */
  createTable(session: Session, ddl: string): Promise<unknown>;
  classifyError(cause: unknown): ErrorKind;
  /** What of the database should be set up in another way, if anything. */
  advice?(session: Session, table: Table): Promise<string | undefined>;
  /** Has keys of the table called out when they are freed; `false` where that cannot be. */
  listen?(driverConnection: object, table: Table, onReleased: (key: string) => void): Promise<boolean>;
  /** The statements on one table. */
  createStatements(table: Table): Statements;
}

/** What an attempt to grant keys brought, in the order of the requests. */
interface GrantOutcomes {
  /** The database's clock, where the answer tells it. */
  readonly nowUs?: number | undefined;
  readonly outcomes: readonly GrantOutcome[];
}

/**
 * Each of them takes effect in a single step for each key, whatever it reads before or after it, and locks rows in the
 * order of their keys, so that no two of them wait for each other. No key stands twice in a list; answers stand in the
 * order of the requests.
 */
export interface Statements {
  /** Grants what is free; or again to the one who holds it. Without ticks. */
  acquire(session: Session, requests: readonly AcquireRequest[], notAfterUs: number): Promise<GrantOutcomes>;
  renew(session: Session, requests: readonly RenewRequest[]): Promise<readonly RenewResult[]>;
  release(session: Session, claims: readonly Claim[]): Promise<readonly ReleaseResult[]>;
  /** The token may be any of those that the present grant takes up. */
  forceRelease(session: Session, key: string, fencingToken: bigint): Promise<boolean>;
  readRow(session: Session, key: string): Promise<LockRowSnapshot>;
  /** Sees to it that the key has a row. */
  insertMissing(session: Session, key: string): Promise<void>;
  /** Grants the key, which is free, with its tick, if the row is still as it was seen. Answers the fencing token. */
  claim(session: Session, request: AcquireRequest, conditions: ClaimConditions): Promise<bigint | undefined>;
  /** Notes the tick as the newest claimed one if the row knows none. Says whether it did. */
  register(session: Session, key: string, tickMs: number): Promise<boolean>;
  /** Frees the key of a run that has ended, and notes that it has. */
  releaseEndedRun(session: Session, claim: Claim): Promise<ReleaseResult>;
  appendHistory(session: Session, key: string, entry: string): Promise<void>;
  /** The lines that {@link appendHistory} wrote, as one text. */
  readHistory(session: Session, key: string): Promise<string>;
  /** Deletes the free rows between two keys; those of runs that have not ended so long after they were surely on. */
  cleanUp(session: Session, keys: KeyCleanUp): Promise<unknown>;
}

/** Under which a tick is granted. */
interface ClaimConditions {
  readonly row: LockRow;
  readonly attempt: number;
  /** In µs of the database's clock. */
  readonly notAfterUs: number;
}
