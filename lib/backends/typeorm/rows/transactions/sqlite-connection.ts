import type { QueryRunner } from 'typeorm';
import { dataSourceOf } from '../database.js';

/** The used part of a `better-sqlite3` database, or of a driver with the same interface. */
export interface SqliteConnection {
  readonly inTransaction?: boolean;
  prepare(sql: string): { get(): unknown; all(): unknown[] };
  exec(sql: string): unknown;
}

/** SQLite's only connection; `undefined` before it is opened, and for a server. */
export const sqliteConnectionOf = (runner: QueryRunner) =>
  (dataSourceOf(runner).driver as { databaseConnection?: SqliteConnection }).databaseConnection;

/** Whether the only connection of SQLite has an open transaction, whoever has begun it. */
export const isOpenInSqlite = (runner: QueryRunner): boolean =>
  sqliteConnectionOf(runner)?.inTransaction === true;
