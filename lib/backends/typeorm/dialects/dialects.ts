import type { Dialect } from './dialect.js';
import { mariadb, mysql } from './mysql/mysql-dialect.js';
import { postgres } from './postgres/postgres-dialect.js';
import { sqlite } from './sqlite/sqlite-dialect.js';

/** The types of data sources that can keep locks. */
export type SupportedType = 'postgres' | 'mysql' | 'mariadb' | 'better-sqlite3';

const DIALECTS: Readonly<Record<SupportedType, Dialect>> = {
  postgres,
  mysql,
  mariadb,
  'better-sqlite3': sqlite,
};

export const SUPPORTED_TYPES = Object.keys(DIALECTS) as readonly SupportedType[];

export const dialectOf = (type: SupportedType): Dialect => DIALECTS[type];
