import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { serviceUrl } from '../support/environment.js';
import { type PostgresDatabase, createPostgresDatabase, urlOf } from '../support/postgres-database.js';
import { startPgbouncer } from '../services/pgbouncer.js';
import type { Service } from '../services/service.js';
import { type Outcomes, describeLawOutcomes, lawsOfSettings, startLaws } from './law-suite.js';
import { recordSettings } from './recorded-settings.js';
import { sqlBench } from './sql-bench.js';

const LEVELS = ['read committed', 'repeatable read', 'serializable'] as const;

type Level = (typeof LEVELS)[number];

/** What stands between us and the server. */
const WAYS = {
  nothing: undefined,
  'a PgBouncer that refuses settings at start': {},
  'a PgBouncer that drops settings at start': {
    ignore_startup_parameters: 'options, statement_timeout, lock_timeout',
  },
} as const;

type Way = keyof typeof WAYS;

const ways = Object.keys(WAYS) as Way[];

/** Each level and each way once, and the one in which everything differs at once. */
const ESSENTIAL: readonly (readonly [Way, Level])[] = [
  [ways[0]!, 'serializable'],
  [ways[1]!, 'read committed'],
  [ways[1]!, 'repeatable read'],
  [ways[2]!, 'serializable'],
];

const EVERY = ways.flatMap((way) => LEVELS.map((level) => [way, level] as const));

const cases = (process.env['EVERY_SETTING'] ? EVERY : ESSENTIAL).map(([way, level]) => ({ way, level }));

const poolers = new Map<Way, Service>();
const opened: PostgresDatabase[] = [];
beforeAll(async () => {
  const [file, server] = [serviceUrl('TEST_PGBOUNCER'), serviceUrl('TEST_POSTGRES_URL')];
  const started = ways.map(async (way) => {
    const settings = WAYS[way];
    if (settings) poolers.set(way, await startPgbouncer({ file, server, settings }));
  });
  await Promise.all(started);
  for (const each of cases) benches.set(each, await lookOn(each));
});
afterAll(async () => {
  await Promise.all([...poolers.values()].map((pooler) => pooler.stop()));
  await Promise.all(opened.map((database) => database.drop()));
});

interface Bench {
  readonly url: string;
  readonly database: PostgresDatabase;
  readonly outcomes: Outcomes;
}

const benches = new Map<object, Bench>();

/** Begins to look at the laws on a database of its own. */
async function lookOn({ way, level }: { way: Way; level: Level }): Promise<Bench> {
  const database = await createPostgresDatabase({
    default_transaction_isolation: level,
    synchronous_commit: 'off',
  });
  opened.push(database);
  const url = urlOf(poolers.get(way)?.url ?? database.url, database.name);
  const bench = sqlBench(() => ({ database: { type: 'postgres', at: url } }));
  const outcomes = startLaws(bench, { laws: lawsOfSettings });
  return { url, database, outcomes };
}

describe.each(cases)('PostgreSQL whose default is $level, behind $way,', (each) => {
  const { way, level } = each;
  describeLawOutcomes('it', () => benches.get(each)!.outcomes, lawsOfSettings);

  it('runs the statements of the backend in the isolation of the session, and its grants wait for the disk', async () => {
    const { url, database } = benches.get(each)!;
    const table = 'recorded_locks';
    const backend = typeormBackend({ dataSource: { type: 'postgres', url }, table });
    try {
      const isolation = way === 'nothing' ? 'read committed' : level;
      const [durable, hasty] = [
        { isolation, durable: 'on' },
        { isolation, durable: 'off' },
      ];
      expect(await recordSettings(backend, { url: database.url, table })).toEqual({
        ...{ grant: durable, grants: durable, renewal: durable },
        ...{ registration: durable, tick: durable, end: durable },
        ...{ release: hasty, releases: hasty },
      });
    } finally {
      await backend.close();
    }
  });
});
