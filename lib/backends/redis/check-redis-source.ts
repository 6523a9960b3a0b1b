import type { Cluster, Redis } from 'ioredis';
import { Faults, unsetHint, unsetVariableHint } from '../../core/faults.js';
import { shown } from '../../core/shown.js';
import { type RedisSource, databaseOf, isCluster } from './connection.js';
import type { ReplicaOptions } from './replicas.js';

const SOURCES = ['client', 'url', 'options'] as const;
const REPLICA_OPTIONS = ['minReplicas', 'replicaTimeoutMs'] as const;
/** Answers are of no use for longer than that. */
const LONGEST_REPLICA_TIMEOUT_MS = 5_000;

/** @throws LockConfigError unless the source is exactly one of a client, a URL or options */
export function checkRedisSource(source: unknown): asserts source is RedisSource & ReplicaOptions {
  const faults = new Faults();
  const one = 'exactly one of { client }, { url } and { options }';
  const given = findSourceFaults(faults, source, { path: 'the argument', one, alsoKnown: REPLICA_OPTIONS });
  checkReplicas(given, faults);
  faults.throwIfAny('Wrong redisBackend() options');
}

interface SourcePlace {
  readonly path: string;
  /** What one must be. */
  readonly one: string;
  readonly alsoKnown?: readonly string[];
}

/** Looks over where a server is said to be. Shows nothing that may hold a password. */
export function findSourceFaults(
  faults: Faults,
  source: unknown,
  { path, one, alsoKnown = [] }: SourcePlace,
): Readonly<Record<string, unknown>> {
  if (!isObject(source) || isClient(source)) {
    faults.add(`expected ${path} to be ${one}, got ${kindOf(source)}`);
    return {};
  }
  const given = faults.object(path, source, [...SOURCES, ...alsoKnown]);
  if (SOURCES.filter((name) => given[name] !== undefined).length !== 1) {
    faults.add(`expected ${path} to be ${one}, got ${fieldsOf(given)}${hintOf(given)}`);
  }
  const { client, url, options } = given;
  if (client !== undefined && !isClient(client)) {
    faults.add(`expected client to be a Redis or Cluster client of ioredis, got ${kindOf(client)}`);
  }
  if (url !== undefined) findUrlFaults(url, faults);
  if (options !== undefined && !isObject(options)) {
    faults.add(`expected options to be an object of options for ioredis, got ${kindOf(options)}`);
  }
  if (isObject(options)) {
    findUnsetHost(options, faults);
    findDatabaseFault({ options }, 'options.db', faults);
  }
  if (isClient(client)) findDatabaseFault({ client }, 'db of the client', faults);
  return given;
}

/**
 * ioredis does not report that it cannot select a database that is no number: its promise rejects unhandled, and locks
 * would be kept in database 0.
 */
export function findDatabaseFault(source: RedisSource, path: string, faults: Faults): void {
  const database = databaseOf(source);
  if (database === undefined || (Number.isInteger(database) && database >= 0)) return;
  const hint = Number.isNaN(database) ? unsetVariableHint(path) : '';
  faults.add(`expected ${path} to be the number of a database, got ${database}${hint}`);
}

function findUrlFaults(url: unknown, faults: Faults): void {
  const like = `expected url to be like 'redis://localhost:6379/0' or 'rediss://…'`;
  if (typeof url !== 'string') faults.add(`${like}, got ${kindOf(url)}`);
  else if (!/^rediss?:/i.test(url)) faults.add(`${like}, got one that does not begin so`);
  else if (!URL.canParse(url)) {
    faults.add(`${like}, got a text that is no URL. Is a variable of the environment not set?`);
  } else findDatabaseFault({ url }, 'the database in url', faults);
}

/** ioredis would go to localhost without a word. */
function findUnsetHost(options: object, faults: Faults): void {
  const { host, path, sentinels } = options as Readonly<Record<string, unknown>>;
  if (!('host' in options) || [host, path, sentinels].some((where) => where !== undefined)) return;
  faults.add(
    `expected options.host to be where the server is, got undefined${unsetVariableHint('options.host')}`,
  );
}

function checkReplicas(given: Readonly<Record<string, unknown>>, faults: Faults): void {
  const { client, minReplicas, replicaTimeoutMs } = given;
  const isCount = Number.isInteger(minReplicas) && (minReplicas as number) >= 1;
  faults.expect('minReplicas', minReplicas, 'a whole number of replicas, at least 1', isCount);
  faults.wholeMs('replicaTimeoutMs', replicaTimeoutMs, { min: 1, max: LONGEST_REPLICA_TIMEOUT_MS });
  if (minReplicas === undefined && replicaTimeoutMs !== undefined) {
    faults.add('expected minReplicas beside replicaTimeoutMs, which says how long to wait for them');
  }
  if (minReplicas !== undefined && isClient(client) && isCluster(client)) {
    faults.add(
      `expected no minReplicas with a Cluster client, which cannot ask the very node of a key with WAIT; set ` +
        `min-replicas-to-write in the configuration of the nodes instead`,
    );
  }
}

/** What came, without what it holds. */
export function kindOf(value: unknown): string {
  if (typeof value === 'string') return 'a string';
  if (Array.isArray(value)) return 'a list';
  if (isClient(value)) return 'a client by itself';
  return typeof value === 'object' && value !== null ? 'an object' : shown(value);
}

/** Of a source that is there without a value, where none has one. */
function hintOf(given: Readonly<Record<string, unknown>>): string {
  if (SOURCES.some((name) => given[name] !== undefined)) return '';
  return SOURCES.map((name) => unsetHint(given, name)).find((hint) => hint !== '') ?? '';
}

const fieldsOf = (value: Readonly<Record<string, unknown>>) => {
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
