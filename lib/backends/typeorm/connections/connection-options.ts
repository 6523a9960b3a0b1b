import type { DataSourceOptions } from 'typeorm';

/** Two, so that a renewal does not wait for a slow statement. */
export const MAX_CONNECTIONS = 2;
export const CONNECT_TIMEOUT_MS = 5_000;
/**
 * Keeps routers and proxies from dropping an idle connection. It is also the only way to detect that the connection which
 * waits for notifications is dead.
 */
export const KEEP_ALIVE_MS = 5_000;

const ADDRESS_OPTIONS = ['url', 'host', 'port', 'socketPath', 'username', 'password', 'database'] as const;

/**
 * The options of a data source that say how to connect. No others are taken over, not even unknown ones of a driver or a
 * later version: they could change what the backend's statements do or what their results look like.
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
 * The user's connect options; with replication, those of the master. The replicas are left out, because TypeORM connects to
 * all of them and fails if one is down.
 */
export function connectOptionsOf(options: DataSourceOptions): AnyOptions {
  const all = options as unknown as AnyOptions;
  const own = pick(all, CONNECT_OPTIONS);
  const { replication } = all;
  if (!replication) return { ...own, poolSize: MAX_CONNECTIONS };
  const { master } = replication as { master: AnyOptions };
  // As TypeORM does: `ssl` stands outside of `replication` for MySQL, inside for PostgreSQL.
  const ssl = own['type'] === 'postgres' ? master['ssl'] : own['ssl'];
  return { ...omit(own, ADDRESS_OPTIONS), ...pick(master, CONNECT_OPTIONS), ssl, poolSize: MAX_CONNECTIONS };
}

/** All connect options as they are now, as one flat list to compare with an earlier one. */
export const connectValuesOf = (options: DataSourceOptions): readonly unknown[] =>
  [connectOptionsOf(options), (options.extra ?? {}) as AnyOptions].flatMap((part) =>
    Object.entries(part).flat(),
  );

/**
 * Where the table of the locks is, without user and password. Locks in two places would have two holders. The `options` of
 * PostgreSQL may contain a `search_path`.
 */
export function addressOf(options: DataSourceOptions): string {
  const extra = (options.extra ?? {}) as AnyOptions;
  const settings = options.type === 'postgres' ? extra['options'] : undefined;
  return JSON.stringify([placeOf(connectOptionsOf(options)), placeOf(extra), settings]);
}

/** `connectionString` is the URL of `pg`, and `uri` that of `mysql2`. */
const placeOf = ({ url, connectionString, uri, host, port, socketPath, database }: AnyOptions) => [
  ...[url, connectionString, uri].map(withoutCredentials),
  ...[host, port, socketPath, database],
];

const withoutCredentials = (url: unknown) =>
  typeof url === 'string'
    ? url.replace(/\/\/[^/]*@/, '//').replace(/(?<=[?&])(user|password)=[^&]*/g, '')
    : url;

/** The options of the user's `extra` that say how to connect. */
export const pickExtra = (options: DataSourceOptions, names: readonly string[]): AnyOptions =>
  pick((options.extra ?? {}) as AnyOptions, names);

/** 0 means no limit, as in the drivers. */
export const shorterTimeoutMs = (ours: number, theirs: unknown): number =>
  typeof theirs === 'number' && theirs > 0 ? Math.min(ours, theirs) : ours;

export const omit = (options: AnyOptions, names: readonly string[]): AnyOptions =>
  Object.fromEntries(Object.entries(options).filter(([name]) => !names.includes(name)));

const pick = (options: AnyOptions, names: readonly string[]): AnyOptions =>
  Object.fromEntries(Object.entries(options).filter(([name]) => names.includes(name)));
