import type { DataSourceOptions } from 'typeorm';

/** So that a slow statement does not keep a renewal waiting. */
export const MAX_CONNECTIONS = 2;
export const CONNECT_TIMEOUT_MS = 5_000;
/** Keeps an idle connection known to what stands between; a dead one that waits for calls is noticed by this alone. */
export const KEEP_ALIVE_MS = 5_000;

const ADDRESS_OPTIONS = ['url', 'host', 'port', 'socketPath', 'username', 'password', 'database'] as const;

/**
 * How a data source connects, which is all that we take of it: anything else, one that its driver or a later version may
 * bring too, could change what our statements do or what their results look like.
 */
const CONNECT_OPTIONS = [
  ...ADDRESS_OPTIONS,
  'type',
  'driver',
  'connectorPackage',
  'ssl',
  'applicationName',
  'connectTimeoutMS',
  'connectTimeout',
  'insecureAuth',
  'flags',
  // SQLite
  'key',
  'prepareDatabase',
  'nativeBinding',
  'enableWAL',
] as const;

export type AnyOptions = Readonly<Record<string, unknown>>;

/**
 * The user's way to the database, and to the master where there are replicas. Those are left out, since TypeORM
 * connects to all of them and fails where one is down.
 */
export function connectOptionsOf(options: DataSourceOptions): AnyOptions {
  const all = options as unknown as AnyOptions;
  const own = pick(all, CONNECT_OPTIONS);
  const { replication } = all;
  if (!replication) return { ...own, poolSize: MAX_CONNECTIONS };
  const { master } = replication as { master: AnyOptions };
  // As TypeORM does it: MySQL takes `ssl` from outside of the replication, PostgreSQL from within.
  const ssl = own['type'] === 'postgres' ? master['ssl'] : own['ssl'];
  return { ...omit(own, ADDRESS_OPTIONS), ...pick(master, CONNECT_OPTIONS), ssl, poolSize: MAX_CONNECTIONS };
}

/** The user's way to the database as it is now, part by part. */
export const connectValuesOf = (options: DataSourceOptions): readonly unknown[] =>
  [connectOptionsOf(options), (options.extra ?? {}) as AnyOptions].flatMap((part) =>
    Object.entries(part).flat(),
  );

/** Where the database is, without who connects. Locks in two places would have two holders. */
export const addressOf = (options: DataSourceOptions): string =>
  JSON.stringify(
    [connectOptionsOf(options), (options.extra ?? {}) as AnyOptions].map(
      ({ url, host, port, socketPath, database }) => [
        typeof url === 'string' ? url.replace(/\/\/[^/]*@/, '//') : url,
        host,
        port,
        socketPath,
        database,
      ],
    ),
  );

/** What of the user's `extra` says how to connect. */
export const pickExtra = (options: DataSourceOptions, names: readonly string[]): AnyOptions =>
  pick((options.extra ?? {}) as AnyOptions, names);

/** 0 stands for no limit, as it does in the drivers. */
export const shorterTimeoutMs = (ours: number, theirs: unknown): number =>
  typeof theirs === 'number' && theirs > 0 ? Math.min(ours, theirs) : ours;

export const omit = (options: AnyOptions, names: readonly string[]): AnyOptions =>
  Object.fromEntries(Object.entries(options).filter(([name]) => !names.includes(name)));

const pick = (options: AnyOptions, names: readonly string[]): AnyOptions =>
  Object.fromEntries(Object.entries(options).filter(([name]) => names.includes(name)));
