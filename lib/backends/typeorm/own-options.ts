import type { DataSourceOptions } from 'typeorm';

/** So that a slow statement does not keep a renewal waiting. */
export const MOST_CONNECTIONS = 2;
export const CONNECT_LIMIT_MS = 5_000;

/** What a data source does beside connecting; ours only connects. */
const USERS_OWN = [
  'entities',
  'subscribers',
  'migrations',
  'migrationsRun',
  'synchronize',
  'dropSchema',
  'cache',
  'logger',
  'logging',
  'logNotifications',
  'maxQueryExecutionTime',
  'enableQueryTimeout',
  'isolationLevel',
  'extensions',
  'verbose',
] as const;

const ADDRESS = ['url', 'host', 'port', 'socketPath', 'username', 'password', 'database'] as const;

export type AnyOptions = Readonly<Record<string, unknown>>;

/**
 * The user's way to the database, and to the master where there are replicas. Those are left out, since TypeORM
 * connects to all of them and fails where one is down.
 */
export function masterOf(options: DataSourceOptions): AnyOptions {
  const { replication, ...own } = without(options as unknown as AnyOptions, USERS_OWN);
  if (!replication) return { ...own, poolSize: MOST_CONNECTIONS };
  const { master } = replication as { master: AnyOptions };
  // As TypeORM does it: MySQL takes `ssl` from outside of the replication, PostgreSQL from within.
  const ssl = own['type'] === 'postgres' ? master['ssl'] : own['ssl'];
  return { ...without(own, ADDRESS), ...master, ssl, poolSize: MOST_CONNECTIONS };
}

export const extraOf = (options: DataSourceOptions): AnyOptions => (options.extra ?? {}) as AnyOptions;

/** 0 stands for no limit, as it does in the drivers. */
export const shorterOf = (ours: number, theirs: unknown): number =>
  typeof theirs === 'number' && theirs > 0 ? Math.min(ours, theirs) : ours;

export const without = (options: AnyOptions, names: readonly string[]): AnyOptions =>
  Object.fromEntries(Object.entries(options).filter(([name]) => !names.includes(name)));
