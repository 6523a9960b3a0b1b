import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { ConnectionFactory } from '../../lib/backends/typeorm/connections/connection-factory.js';
import { Timeout } from '../../lib/backends/typeorm/connections/session.js';
import { mariadb } from '../../lib/backends/typeorm/dialects/mysql/mysql-dialect.js';
import { type TypeormBackend, typeormBackend } from '../../lib/backends/typeorm/index.js';
import { describeStoreFailure } from '../../lib/core/store-failures.js';
import { startMariadb } from '../services/mariadb.js';
import type { Service } from '../services/service.js';
import { until } from '../support/until.js';
import { type Outcomes, describeLawOutcomes, lawsOfSettings, startLaws } from './law-suite.js';
import { sqlBench } from './sql-bench.js';

const LIMIT_MS = 5_000;

/** Each changes what a statement means or sees. */
const SETTINGS = [
  '--sql-mode=EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,ANSI_QUOTES,NO_BACKSLASH_ESCAPES',
  '--transaction-isolation=READ-COMMITTED',
  '--innodb-snapshot-isolation=ON',
  // One of them alone, for users other than root.
  `--init-connect=SET SESSION sql_mode = 'STRICT_TRANS_TABLES',
    SESSION innodb_snapshot_isolation = IF(USER() LIKE 'snapshot@%', 1, 0),
    SESSION tx_isolation = IF(USER() LIKE 'committed@%', 'READ-COMMITTED', 'REPEATABLE-READ')`,
  '--sql-safe-updates=ON',
  '--max-join-size=1',
  '--max-statement-time=600',
];

/** MariaDB has no option for it. */
const SELECT_LIMIT = 'SET GLOBAL sql_select_limit = 1';

const USERS = [
  {
    ...{ user: 'root', name: 'a MariaDB with modes, READ COMMITTED and snapshot isolation' },
    session: { snapshot: 'ON', isolation: 'READ-COMMITTED' },
  },
  {
    ...{ user: 'snapshot', name: 'a MariaDB with snapshot isolation' },
    session: { snapshot: 'ON', isolation: 'REPEATABLE-READ' },
  },
  {
    ...{ user: 'committed', name: 'a MariaDB with READ COMMITTED' },
    session: { snapshot: 'OFF', isolation: 'READ-COMMITTED' },
  },
];

let server: Service;
const outcomes = new Map<string, Outcomes>();
beforeAll(async () => {
  server = await startMariadb({ args: SETTINGS });
  const root = await new DataSource({ type: 'mariadb', url: server.url }).initialize();
  for (const { user } of USERS) {
    // Databases of their own, so that each creates its table.
    await root.query(`CREATE DATABASE of_${user}`);
    await root.query(`CREATE USER IF NOT EXISTS ${user}@'%'`);
    if (user !== 'root') await root.query(`GRANT ALL ON of_${user}.* TO ${user}@'%'`);
  }
  await root.query(SELECT_LIMIT);
  await root.destroy();
  for (const { user } of USERS) {
    const at = urlOf(user);
    const bench = sqlBench(() => ({ database: { type: 'mariadb', at } }));
    outcomes.set(user, startLaws(bench, { laws: lawsOfSettings }));
  }
});
afterAll(() => server.stop());

function urlOf(user: string): string {
  const url = new URL(server.url);
  url.username = user;
  url.pathname = `/of_${user}`;
  return url.href;
}

describe.each(USERS)('$user:', ({ user, name, session }) => {
  describeLawOutcomes(name, () => outcomes.get(user)!, lawsOfSettings);

  it('its sessions have these settings', async () => {
    const database = await new DataSource({ type: 'mariadb', url: urlOf(user) }).initialize();
    try {
      const rows = await database.query<object[]>(
        `SELECT CAST(@@innodb_snapshot_isolation AS CHAR) AS snapshot, @@tx_isolation AS isolation,
          CONCAT_WS(',', @@sql_safe_updates, @@max_join_size, @@sql_select_limit) AS limits`,
      );
      expect(rows).toEqual([{ ...session, limits: 'ON,1,1' }]);
    } finally {
      await database.destroy();
    }
  });
});

describe('on a server with sql_safe_updates, max_join_size and sql_select_limit', () => {
  const request = (key: string) => ({ key, holder: `holder of ${key}`, leaseMs: 60_000, instance: 'spec' });
  const kinds = (results: readonly { kind: string }[]) => results.map(({ kind }) => kind);
  const table = 'limited';
  let backend: TypeormBackend;
  let database: DataSource;
  beforeAll(async () => {
    const options = { type: 'mariadb', url: urlOf('root') } as const;
    backend = typeormBackend({ dataSource: options, table, tokenMemoryMs: 1_000 });
    database = await new DataSource(options).initialize();
  });
  afterAll(() => Promise.all([backend.close(), database.destroy()]));

  it('a batch with a lost lock reports the others as renewed and released', async () => {
    const requests = ['a', 'b', 'c', 'd', 'lost'].map(request);
    const { acquire } = await backend.execute({ acquire: requests }, LIMIT_MS);
    expect(kinds(acquire)).toEqual(Array(5).fill('granted'));
    await backend.execute({ release: requests.slice(-1) }, LIMIT_MS);
    const { renew } = await backend.execute({ renew: requests }, LIMIT_MS);
    expect(kinds(renew)).toEqual([...Array<string>(4).fill('renewed'), 'lost']);
    const { release } = await backend.execute({ release: requests }, LIMIT_MS);
    expect(kinds(release)).toEqual([...Array<string>(4).fill('released'), 'gone']);
  });

  it('a statement of the library has no time limit', async () => {
    const options = { type: 'mariadb', url: urlOf('root') } as const;
    const factory = new ConnectionFactory(mariadb, () => options);
    const session = (await factory.connect()).openSession(new Timeout(LIMIT_MS));
    const limit = 'SELECT CAST(@@max_statement_time AS DOUBLE) AS seconds';
    expect(await session.query(limit)).toMatchObject([{ seconds: 0 }]);
    await factory.close();
    expect(await database.query(limit)).toMatchObject([{ seconds: 600 }]);
  });

  it('all locks are listed', async () => {
    const held = ['e', 'f', 'g'].map(request);
    await backend.execute({ acquire: held }, LIMIT_MS);
    const { locks } = await backend.list({ prefix: '', limit: 100 }, LIMIT_MS);
    expect(locks.map(({ key }) => key)).toEqual(expect.arrayContaining(['e', 'f', 'g']));
    await backend.execute({ release: held }, LIMIT_MS);
  });

  it('the rows of free keys are removed', async () => {
    const requests = Array.from({ length: 10 }, (_, index) => request(`idle:${index}`));
    await backend.execute({ acquire: requests }, LIMIT_MS);
    await backend.execute({ release: requests }, LIMIT_MS);
    await until(async () => {
      const rows = await database.query<object[]>(
        `SET STATEMENT sql_big_selects = 1 FOR SELECT * FROM ${table}`,
      );
      return rows.length === 0;
    });
  });
});

it('a server with read_only does not pass the check of a user without READ_ONLY ADMIN, and passes it once it is off', async () => {
  const root = await new DataSource({ type: 'mariadb', url: server.url }).initialize();
  const backend = typeormBackend({ dataSource: { type: 'mariadb', url: urlOf('committed') } });
  try {
    await backend.check(LIMIT_MS);
    await root.query('SET GLOBAL read_only = 1');
    const refusal = await backend.check(LIMIT_MS).catch((error: unknown) => error);
    expect(describeStoreFailure(refusal)).toMatch(/^takes no writes: connect to the primary.*--read-only/);
    await root.query('SET GLOBAL read_only = 0');
    await backend.check(LIMIT_MS);
  } finally {
    await root.query('SET GLOBAL read_only = 0');
    await Promise.all([backend.close(), root.destroy()]);
  }
});

it('a claim that is refused is unknown on a server with read_only, and its connection is closed', async () => {
  const root = await new DataSource({ type: 'mariadb', url: server.url }).initialize();
  const backend = typeormBackend({ dataSource: { type: 'mariadb', url: urlOf('committed') } });
  const claim = async () => {
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    return (
      await backend.execute(
        { acquire: [{ key: 'paused', holder: 'spec', instance: 'spec', leaseMs: 5_000, tick }] },
        LIMIT_MS,
      )
    ).acquire[0]!;
  };
  const connections = async () => {
    const sessions = await root.query<{ Id: number; User: string }[]>('SHOW PROCESSLIST');
    return sessions.filter(({ User }) => User === 'committed').map(({ Id }) => Id);
  };
  try {
    await backend.setPaused('paused', true, LIMIT_MS);
    expect(await claim()).toMatchObject({ kind: 'refused', reason: 'paused' });
    const before = await connections();
    expect(before.length).toBeGreaterThan(0);
    await root.query('SET GLOBAL read_only = 1');
    expect(await claim()).toMatchObject({ kind: 'unknown' });
    await until(async () => !(await connections()).some((id) => before.includes(id)));
    await root.query('SET GLOBAL read_only = 0');
    expect(await claim()).toMatchObject({ kind: 'refused', reason: 'paused' });
  } finally {
    await root.query('SET GLOBAL read_only = 0');
    await Promise.all([backend.close(), root.destroy()]);
  }
});
