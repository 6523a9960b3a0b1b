import { ensureBetterSqlite3 } from './better-sqlite3.js';
import { type Program, ensureProgram, ensurePrograms } from './install.js';
import { startEtcd } from './etcd.js';
import { startMariadb } from './mariadb.js';
import { startPostgres } from './postgres.js';
import { startRedis } from './redis-server.js';
import type { Service } from './service.js';
import { startZookeeper } from './zookeeper.js';

interface Opened {
  readonly value: string;
  readonly service?: Service;
}

interface Kind {
  /** The variable in which the tests look for the service, and a user may name his own. */
  readonly variable: string;
  readonly programs: readonly Program[];
  open(): Promise<Opened>;
}

const kinds = {
  redis: {
    variable: 'TEST_REDIS_URL',
    programs: ['redis-server'],
    open: () => startRedis().then(opened),
  },
  postgres: {
    variable: 'TEST_POSTGRES_URL',
    programs: ['postgres'],
    open: () => startPostgres().then(opened),
  },
  mariadb: {
    variable: 'TEST_MARIADB_URL',
    programs: ['mariadbd', 'mariadb-install-db'],
    open: () => startMariadb().then(opened),
  },
  etcd: {
    variable: 'TEST_ETCD_URL',
    programs: ['etcd', 'etcdctl'],
    open: () => startEtcd().then(opened),
  },
  zookeeper: {
    variable: 'TEST_ZOOKEEPER_URL',
    programs: ['java', '/usr/share/java/zookeeper.jar'],
    open: () => startZookeeper().then(opened),
  },
  // The specs start it in front of that PostgreSQL, each with settings of its own.
  pgbouncer: {
    variable: 'TEST_PGBOUNCER',
    programs: ['pgbouncer'],
    open: async () => ({ value: await ensureProgram('pgbouncer') }),
  },
  'better-sqlite3': {
    variable: 'TEST_BETTER_SQLITE3',
    programs: [],
    open: async () => ({ value: await ensureBetterSqlite3() }),
  },
  chromium: {
    variable: 'TEST_CHROMIUM',
    programs: ['chromium'],
    open: async () => ({ value: await ensureProgram('chromium') }),
  },
} satisfies Record<string, Kind>;

const opened = (service: Service): Opened => ({ value: service.url, service });

export type ServiceName = keyof typeof kinds;
export const serviceNames = Object.keys(kinds) as ServiceName[];

interface OpenServices {
  /** Where each service is, under the name of its variable. */
  readonly variables: Readonly<Record<string, string>>;
  /** Stops what was started here, and nothing else. */
  close(): Promise<void>;
}

/** Starts the services whose variables are not set yet, all at once; if one fails, none is left running. */
export async function openServices(names: readonly ServiceName[]): Promise<OpenServices> {
  const chosen = names.map((name): Kind => kinds[name]);
  const missing = chosen.filter(({ variable }) => !process.env[variable]);
  // Together and first, because only one apt-get can run at a time.
  await ensurePrograms(missing.flatMap(({ programs }) => programs));

  const outcomes = await Promise.allSettled(
    missing.map(async ({ variable, open }) => ({ variable, ...(await open()) })),
  );
  const started = outcomes.filter((outcome) => outcome.status === 'fulfilled').map(({ value }) => value);
  const failures = outcomes
    .filter((outcome) => outcome.status === 'rejected')
    .map(({ reason }) => reason as Error);

  const close = async (): Promise<void> => {
    await Promise.all(started.map(async ({ service }) => service?.stop()));
  };
  if (failures.length > 0) {
    await close();
    throw new AggregateError(failures, failures.map(({ message }) => message).join('\n'));
  }
  const given = chosen.map(({ variable }) => [variable, process.env[variable]]);
  const added = started.map(({ variable, value }) => [variable, value]);
  return { variables: Object.fromEntries([...given, ...added]) as Record<string, string>, close };
}
