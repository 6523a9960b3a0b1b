import type { Socket } from 'node:net';
import type { DataSourceOptions } from 'typeorm';
import type { AcquireRequest, Claim, RenewRequest } from '../../core/backend.js';
import type { TableDialect } from './columns.js';
import type { Granting, Seen } from './seen.js';

/** Sends one statement over one of our connections. What comes back depends on the driver. */
export type Query = (sql: string, parameters?: readonly unknown[]) => Promise<unknown>;

/** What an error of a database means to us; `other` needs no special care. */
export type Fault = 'busy' | 'no table' | 'no column' | 'forbidden' | 'setting refused' | 'other';

/**
 * All that differs between databases. How locks are granted, refused and tried again stands elsewhere, once.
 */
export interface Dialect extends TableDialect {
  /** The options of our own connections, made from the user's; where the first are refused, the next are tried. */
  ownOptions(options: DataSourceOptions): readonly [DataSourceOptions, ...DataSourceOptions[]];
  /** The database lives in this process and has one connection, for which uses stand in line. */
  readonly isInProcess?: true;
  /** Sent first on every new connection. */
  readonly greeting?: string;
  /** What to destroy to be rid of a silent connection. Its driver takes it for a lost one and forgets it. */
  socketOf(connection: object): Socket | undefined;
  /** Creates a table, also when several processes try it at once. */
  create(query: Query, ddl: string): Promise<unknown>;
  faultOf(cause: unknown): Fault;
  /** The statements on one table, whose name comes quoted. */
  on(table: string): Statements;
}

/** Each of them takes effect in a single statement, whatever they read before or after it. */
export interface Statements {
  /** Grants the key if it is free and the tick, if any, may be claimed; or again to the one who holds it. */
  grant(query: Query, request: AcquireRequest): Promise<Granting>;
  /** Says whether there was something to renew, as do the two below for what they do. */
  renew(query: Query, request: RenewRequest): Promise<boolean>;
  release(query: Query, claim: Claim): Promise<boolean>;
  forceRelease(query: Query, key: string, fencingToken: bigint): Promise<boolean>;
  look(query: Query, key: string): Promise<Seen>;
}
