import type { Cluster, Redis, RedisOptions } from 'ioredis';
import { formatValue } from '../../core/format.js';
import { type OptionErrors, unsetHint, unsetVariableHint } from '../../core/option-errors.js';
import { type RedisSource, databaseOf } from './redis-source.js';

const SOURCES = ['client', 'url', 'options'] as const;

/** The options of ioredis that are most often given without `options`. */
const IOREDIS_HINTS = Object.fromEntries(
  ['host', 'port', 'password', 'username', 'db', 'tls', 'sentinels', 'name'].map((name) => [
    name,
    'options of ioredis belong in { options: { … } }',
  ]),
);

interface SourceDescription {
  readonly path: string;
  /** What the value must be, for the message. */
  readonly expected: string;
  /** The function that takes the source, for the message. */
  readonly call?: string;
  readonly otherOptions?: readonly string[];
}

/** Collects what is wrong with a source. Messages contain no value that may contain a password. */
export function collectSourceErrors(
  errors: OptionErrors,
  source: unknown,
  { path, expected, call = '', otherOptions = [] }: SourceDescription,
): Readonly<Record<string, unknown>> {
  if (!isObject(source) || isClient(source)) {
    errors.add(`expected ${path} to be ${expected}, got ${describeKind(source)}${hintFor(source, call)}`);
    return {};
  }
  const given = errors.object(path, source, [...SOURCES, ...otherOptions], IOREDIS_HINTS);
  if (SOURCES.filter((name) => given[name] !== undefined).length !== 1) {
    errors.add(`expected ${path} to be ${expected}, got ${describeFields(given)}${hintOf(given)}`);
  }
  const { client, url, options } = given;
  if (client !== undefined && !isClient(client)) {
    errors.add(`expected client to be a Redis or Cluster client of ioredis, got ${describeKind(client)}`);
  }
  if (url !== undefined) collectUrlErrors(url, errors);
  if (options !== undefined && !isObject(options)) {
    errors.add(`expected options to be an object of options for ioredis, got ${describeKind(options)}`);
  }
  if (isObject(options)) {
    collectHostErrors(options, errors);
    collectDatabaseErrors({ options }, 'options.db', errors);
  }
  if (isClient(client)) collectDatabaseErrors({ client }, 'db of the client', errors);
  return given;
}

/** The source without the fields that are present but `undefined`. */
export function sourceOf(checked: RedisSource): RedisSource {
  const { client, url, options } = checked as {
    readonly client?: Redis | Cluster;
    readonly url?: string;
    readonly options: RedisOptions;
  };
  if (client !== undefined) return { client };
  return url === undefined ? { options } : { url };
}

/**
 * For a database that is not a number, ioredis reports no error to the caller: a promise rejects unhandled, and locks would
 * be kept in database 0.
 */
export function collectDatabaseErrors(source: RedisSource, path: string, errors: OptionErrors): void {
  const database = databaseOf(source);
  if (database === undefined || (Number.isInteger(database) && database >= 0)) return;
  const hint = Number.isNaN(database) ? unsetVariableHint(path) : '';
  errors.add(`expected ${path} to be the number of a database, got ${database}${hint}`);
}

function collectUrlErrors(url: unknown, errors: OptionErrors): void {
  const like = `expected url to be like 'redis://localhost:6379/0' or 'rediss://…'`;
  if (typeof url !== 'string') errors.add(`${like}, got ${describeKind(url)}`);
  else if (!/^rediss?:/i.test(url)) {
    const found = url === '' ? `an empty text${unsetVariableHint('url')}` : 'a text that begins otherwise';
    errors.add(`${like}, got ${found}; begin it with redis://`);
  } else if (!URL.canParse(url)) {
    errors.add(
      `${like}, got a string that is not a URL: probably an environment variable is not set, or a character of the password such ` +
        `as # or / is not percent-encoded`,
    );
  } else collectDatabaseErrors({ url }, 'the database in url', errors);
}

/** For a host that is `undefined`, ioredis would connect to localhost without a warning. */
function collectHostErrors(options: object, errors: OptionErrors): void {
  const { host, path, sentinels } = options as Readonly<Record<string, unknown>>;
  if (!('host' in options) || [host, path, sentinels].some((where) => where !== undefined)) return;
  errors.add(
    `expected options.host to be where the server is, got undefined${unsetVariableHint('options.host')}`,
  );
}

/** The kind of a value, without its content. */
export function describeKind(value: unknown): string {
  if (typeof value === 'string') return 'a string';
  if (Array.isArray(value)) return 'a list';
  if (isClient(value)) return 'a client by itself';
  return typeof value === 'object' && value !== null ? 'an object' : formatValue(value);
}

/** How to pass a URL or a client that was given by itself. */
function hintFor(source: unknown, call: string): string {
  const field = typeof source === 'string' ? 'url' : 'client';
  if (field === 'client' && !isClient(source)) return '';
  return call === '' ? `; write { ${field} }` : `; write ${call}({ ${field} })`;
}

/** A hint for a source that is present but `undefined`, if no source has a value. */
function hintOf(given: Readonly<Record<string, unknown>>): string {
  if (SOURCES.some((name) => given[name] !== undefined)) return '';
  return SOURCES.map((name) => unsetHint(given, name)).find((hint) => hint !== '') ?? '';
}

const describeFields = (value: Readonly<Record<string, unknown>>) => {
  const names = Object.keys(value).map((name) => (value[name] === undefined ? `${name}: undefined` : name));
  return names.length === 0 ? '{}' : `{ ${names.join(', ')} }`;
};

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const isClient = (value: unknown): value is Redis | Cluster =>
  typeof value === 'object' &&
  value !== null &&
  'duplicate' in value &&
  'evalsha' in value &&
  'isCluster' in value;
