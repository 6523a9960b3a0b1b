import { randomUUID } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { ConnectionFactory } from '../../lib/backends/typeorm/connections/connection-factory.js';
import type { Statements } from '../../lib/backends/typeorm/dialects/dialect.js';
import { type TypeormBackend, typeormBackend } from '../../lib/backends/typeorm/index.js';
import { resolveTypeormOptions } from '../../lib/backends/typeorm/typeorm-options.js';
import { ROWS_PER_PAGE } from '../../lib/backends/typeorm/statements/scan-statements.js';
import { type Session, Timeout } from '../../lib/backends/typeorm/connections/session.js';
import type { AcquireRequest } from '../../lib/core/backend.js';
import {
  type Store,
  dataSourceOptions,
  databasesIn,
  mariadbStore,
  postgresStore,
  sqlServers,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { waitersFor } from '../resource/sessions.js';
import { until } from '../support/until.js';

const LIMIT_MS = 20_000;
const TOKEN_MEMORY_MS = 1_000;

const request = (key: string, wish: Partial<AcquireRequest> = {}): AcquireRequest => ({
  ...{ key, holder: randomUUID(), leaseMs: 60_000, instance: 'spec' },
  ...wish,
});

/** Sends a request again until its result is known, as a database that stands still may refuse a statement for its age. */
async function known<Result extends { readonly kind: string }>(
  send: () => Promise<readonly Result[]>,
): Promise<Result> {
  for (;;) {
    const [result] = await send();
    if (result && result.kind !== 'unknown') return result;
  }
}

const keysOf = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix}:${index}`);

describe.each(databasesIn(tempFolder()))('the table of the locks on %s', (_, storeOf) => {
  const opened: { close(): Promise<void> }[] = [];
  let options: DataSourceOptions;
  let stranger: DataSource;
  let table: string;
  beforeEach(async () => {
    options = { ...dataSourceOptions(storeOf()), enableWAL: true } as DataSourceOptions;
    stranger = await new DataSource(options).initialize();
    table = `clean_${randomUUID().replaceAll('-', '')}`;
  });
  afterEach(async () => {
    for (const { close } of opened.splice(0)) await close();
    await stranger.query(`DROP TABLE ${table}`);
    await stranger.destroy();
  });

  function open(): TypeormBackend {
    const backend = typeormBackend({ dataSource: options, table, tokenMemoryMs: TOKEN_MEMORY_MS });
    opened.push({ close: () => backend.close() });
    return backend;
  }

  /** The statements of the clean-up, over a connection of their own. */
  async function openStatements(): Promise<{ statements: Statements; session: Session }> {
    const { dialect, table: lockTable } = resolveTypeormOptions({ dataSource: options, table });
    const factory = new ConnectionFactory(dialect, () => options);
    opened.push({ close: () => factory.close() });
    const session = (await factory.connect()).openSession(new Timeout(120_000));
    return { statements: dialect.createStatements(lockTable), session };
  }

  async function keys(): Promise<readonly string[]> {
    const rows = await stranger.query<{ key: Buffer | string }[]>(`SELECT * FROM ${table}`);
    return rows.map(({ key }) => String(key)).sort();
  }

  async function grant(backend: TypeormBackend, wanted: AcquireRequest): Promise<bigint> {
    for (;;) {
      const { acquire } = await backend.execute({ acquire: [wanted] }, LIMIT_MS);
      const [result] = acquire;
      if (result?.kind === 'granted') return result.fencingToken;
      // On a busy machine the reply may take longer than this short token memory.
      expect(result?.kind).toBe('unknown');
    }
  }

  it('keeps no row of a lock that is over, but all others', async () => {
    const backend = open();
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    const [held, job, ahead] = [
      request('held'),
      request('job', { tick }),
      request('ahead', { tokenCount: 1e9 }),
    ];
    const many = [keysOf('a', 900), keysOf('z', 900)].map((list) => list.map((key) => request(key)));
    for (const acquire of many) {
      await backend.execute({ acquire }, LIMIT_MS);
      await backend.execute({ release: acquire }, LIMIT_MS);
    }
    await backend.execute({ acquire: [held, job, ahead, request('died', { leaseMs: 20 })] }, LIMIT_MS);
    await backend.execute({ release: [{ ...job, hasEnded: true }, ahead] }, LIMIT_MS);
    await backend.execute({ acquire: [request('queued', { leaseMs: 3_000 })] }, LIMIT_MS);
    await backend.execute({ acquire: [request('queued', { retryWithinMs: 60_000 })] }, LIMIT_MS);
    await backend.appendHistory('history', 'spec', LIMIT_MS);
    await backend.registerTicks('registered', LIMIT_MS);
    await backend.setPaused('paused', true, LIMIT_MS);
    await until(async () => (await keys()).length <= 7);
    await until(async () => (await backend.readTicks('queued', LIMIT_MS)).heldForMs < -TOKEN_MEMORY_MS * 2);
    expect(await keys()).toEqual(['ahead', 'held', 'history', 'job', 'paused', 'queued', 'registered']);
    await backend.execute({ release: [held] }, LIMIT_MS);
    await until(async () => !(await keys()).includes('held'));
  });

  it('gives a removed key a larger fencing token', async () => {
    const [backend, { statements, session }] = [open(), await openStatements()];
    let newest = 0n;
    for (let round = 0; round < 20; round += 1) {
      const wanted = request('k', { tokenCount: 3 });
      const token = await grant(backend, wanted);
      expect(token).toBeGreaterThan(newest);
      newest = token + 2n;
      await backend.execute({ release: [wanted] }, LIMIT_MS);
      await until(async () => {
        await statements.removeIdle(session, ['k'], 0);
        return (await keys()).length === 0;
      });
    }
  });

  it('keeps a row that was idle when it was read, and is acquired before it is removed', async () => {
    const [backend, { statements, session }] = [open(), await openStatements()];
    const all = ['held', 'idle', 'queued', 'ticked'];
    const first = all.map((key) => request(key));
    await backend.execute({ acquire: first }, LIMIT_MS);
    await backend.execute({ release: first }, LIMIT_MS);
    await until(async () => (await statements.readPage(session, '', 1)).every(({ isIdle }) => isIdle));
    const [held, short] = [request('held'), request('queued', { leaseMs: 20 })];
    await grant(backend, held);
    await backend.execute({ acquire: [short] }, LIMIT_MS);
    await stranger.query(
      `UPDATE ${table} SET waiting_until = 9000000000000000 WHERE holder = '${short.holder}'`,
    );
    await backend.registerTicks('ticked', LIMIT_MS);
    await until(async () => (await backend.readTicks('queued', LIMIT_MS)).heldForMs < -10);
    await statements.removeIdle(session, all, 1);
    expect(await keys()).toEqual(['held', 'queued', 'ticked']);
    expect(await backend.execute({ renew: [held] }, LIMIT_MS)).toMatchObject({
      renew: [{ kind: 'renewed' }],
    });
  });

  it('grants no key twice, and loses no lock, while rows are removed', async () => {
    const backends = [open(), open()];
    await backends[0]!.check(LIMIT_MS);
    const { statements, session } = await openStatements();
    const names = keysOf('k', 8);
    const holders = new Map<string, string>();
    let [grants, removals, isOver] = [0, 0, false];
    const removing = (async () => {
      while (!isOver) {
        const before = await statements.readPage(session, '', 0);
        const idle = before.filter(({ isIdle }) => isIdle).map(({ key }) => key);
        if (idle.length > 0) await statements.removeIdle(session, idle, 0).catch(() => undefined);
        removals += idle.length;
        await turn();
      }
    })();
    const use = async (backend: TypeormBackend, key: string) => {
      const wanted = request(key);
      const { kind } = await known(
        async () => (await backend.execute({ acquire: [wanted] }, LIMIT_MS)).acquire,
      );
      if (kind !== 'granted') return;
      expect(holders.get(key)).toBeUndefined();
      holders.set(key, wanted.holder);
      const renewed = await known(async () => (await backend.execute({ renew: [wanted] }, LIMIT_MS)).renew);
      expect(renewed.kind).toBe('renewed');
      holders.delete(key);
      const { release } = await backend.execute({ release: [wanted] }, LIMIT_MS);
      expect(release[0]!.kind).toBe('released');
      grants += 1;
    };
    const crowd = Array.from({ length: 12 }, async (_, caller) => {
      try {
        for (let round = 0; !isOver && (grants < 200 || removals < 50); round += 1) {
          await use(backends[caller % 2]!, names[(caller + round * 5) % names.length]!);
          await turn(); // SQLite responds in the same turn.
        }
      } finally {
        isOver = true;
      }
    });
    const outcomes = await Promise.allSettled(crowd);
    await removing;
    expect(outcomes.filter(({ status }) => status === 'rejected')).toEqual([]);
  });
});

describe.each(sqlServers)('the removal of idle rows on %s', (type, storeOf) => {
  it('keeps no other lock waiting, and waits for none', async () => {
    const table = `clean_${randomUUID().replaceAll('-', '')}`;
    const options = dataSourceOptions(storeOf());
    const backend = typeormBackend({ dataSource: options, table });
    const { dialect, table: lockTable } = resolveTypeormOptions({ dataSource: options, table });
    const factory = new ConnectionFactory(dialect, () => options);
    const database = await new DataSource(options).initialize();
    try {
      const held = ['a', 'old-2', 'z'].map((key) => request(key));
      const old = ['old-1', 'old-3'].map((key) => request(key));
      await backend.execute({ acquire: [...held, ...old] }, LIMIT_MS);
      await backend.execute({ release: old }, LIMIT_MS);
      const statements = dialect.createStatements(lockTable);
      const { query, ...rest } = (await factory.connect()).openSession(new Timeout(LIMIT_MS));
      const session = { query, ...rest };
      await query(type === 'postgres' ? 'BEGIN' : 'START TRANSACTION');
      await statements.removeIdle(session, ['old-1', 'old-3'], 0);
      const during = await backend.execute(
        { renew: held, acquire: ['aa', 'old-0', 'old-4', 'zz'].map((key) => request(key)) },
        LIMIT_MS,
      );
      expect(during.renew.map(({ kind }) => kind)).toEqual(['renewed', 'renewed', 'renewed']);
      expect(during.acquire.map(({ kind }) => kind)).toEqual(Array(4).fill('granted'));
      await query('COMMIT');
      const rows = await database.query<{ key: Buffer | string }[]>(`SELECT * FROM ${table}`);
      const left = rows.map(({ key }) => String(key)).sort();
      expect(left).toEqual(['a', 'aa', 'old-0', 'old-2', 'old-4', 'z', 'zz']);
    } finally {
      await factory.close();
      await backend.close();
      await database.query(`DROP TABLE ${table}`);
      await database.destroy();
    }
  });
});

/** MariaDB before 10.6 does not know SKIP LOCKED. */
const withoutSkipLocked = (session: Session): Session => ({
  ...session,
  query: (sql, parameters) =>
    session.query(sql.includes('SKIP LOCKED') ? `${sql} AS IN MARIADB 10.5` : sql, parameters),
});

const removals: [name: string, storeOf: () => Store, sessionOf: (session: Session) => Session][] = [
  ...sqlServers.map(([name, storeOf]): (typeof removals)[number] => [name, storeOf, (session) => session]),
  ['mariadb without SKIP LOCKED', () => mariadbStore(), withoutSkipLocked],
];

describe.each(removals)('the removal of idle rows on %s', (type, storeOf, sessionOf) => {
  it('does not wait for a row that a transaction of others has locked', async () => {
    const table = `clean_${randomUUID().replaceAll('-', '')}`;
    const options = dataSourceOptions(storeOf());
    const backend = typeormBackend({ dataSource: options, table });
    const { dialect, table: lockTable } = resolveTypeormOptions({ dataSource: options, table });
    const factory = new ConnectionFactory(dialect, () => options);
    const owner = await new DataSource({ ...options, poolSize: 1 } as DataSourceOptions).initialize();
    try {
      const old = keysOf('old', 6).map((key) => request(key));
      await backend.execute({ acquire: old }, LIMIT_MS);
      await backend.execute({ release: old }, LIMIT_MS);
      await owner.transaction(async (manager) => {
        const key = type === 'postgres' ? 'key' : '`key`';
        await manager.query(`UPDATE ${table} SET instance = instance WHERE ${key} = 'old:1'`);
        const session = sessionOf((await factory.connect()).openSession(new Timeout(LIMIT_MS)));
        // Longer than the session, so that a wait for the row is an error.
        if (type !== 'postgres') await session.query('SET SESSION innodb_lock_wait_timeout = 100');
        const keys = old.map(({ key }) => key);
        await dialect.createStatements(lockTable).removeIdle(session, keys, 0);
        const left = await manager.query<{ key: Buffer | string }[]>(`SELECT * FROM ${table} FOR UPDATE`);
        expect(left.map((row) => String(row.key))).toEqual(['old:1']);
      });
    } finally {
      await factory.close();
      await backend.close();
      await owner.query(`DROP TABLE ${table}`);
      await owner.destroy();
    }
  });
});

describe.each(sqlServers)('the removal of idle rows on %s', (type, storeOf) => {
  it('continues after rows that the database refuses to remove', async () => {
    const table = `clean_${randomUUID().replaceAll('-', '')}`;
    const options = dataSourceOptions(storeOf());
    const backend = typeormBackend({ dataSource: options, table, tokenMemoryMs: TOKEN_MEMORY_MS });
    const database = await new DataSource(options).initialize();
    try {
      await backend.check(LIMIT_MS);
      const column = type === 'postgres' ? 'name text COLLATE "C"' : 'name varbinary(2304)';
      const key = type === 'postgres' ? 'key' : '`key`';
      await database.query(
        `CREATE TABLE ${table}_user (${column}, FOREIGN KEY (name) REFERENCES ${table} (${key}))`,
      );
      // Each fills a page.
      const [first, second] = ['a', 'z'].map((prefix) =>
        keysOf(prefix, ROWS_PER_PAGE).map((key) => request(key)),
      ) as [AcquireRequest[], AcquireRequest[]];
      await backend.execute({ acquire: [...first, ...second] }, LIMIT_MS);
      await database.query(`INSERT INTO ${table}_user VALUES ('a:0')`);
      await backend.execute({ release: [...first, ...second] }, LIMIT_MS);
      await until(async () => {
        const rows = await database.query<object[]>(`SELECT * FROM ${table}`);
        return rows.length === ROWS_PER_PAGE;
      });
    } finally {
      await backend.close();
      await database.query(`DROP TABLE ${table}_user`);
      await database.query(`DROP TABLE ${table}`);
      await database.destroy();
    }
  });
});

it('a renewal that has waited while its lease ended and its row was removed does not bring the lock back, on postgres', async () => {
  const table = `clean_${randomUUID().replaceAll('-', '')}`;
  const options = dataSourceOptions(postgresStore());
  const backend = typeormBackend({ dataSource: options, table });
  const { dialect, table: lockTable } = resolveTypeormOptions({ dataSource: options, table });
  const factory = new ConnectionFactory(dialect, () => options);
  const database = await new DataSource({ ...options, poolSize: 1 } as DataSourceOptions).initialize();
  try {
    const [first, short] = [request('a'), request('k', { leaseMs: 400 })];
    await backend.execute({ acquire: [first, short] }, LIMIT_MS);
    await database.query('BEGIN');
    await database.query(`UPDATE ${table} SET instance = instance WHERE key = 'a'`);
    const renewing = backend.execute({ renew: [first, short] }, LIMIT_MS);
    const session = (await factory.connect()).openSession(new Timeout(LIMIT_MS));
    const statements = dialect.createStatements(lockTable);
    await until(async () => {
      await statements.removeIdle(session, ['k'], 0);
      return (await statements.readPage(session, 'a', 0)).length === 0;
    });
    await database.query('COMMIT');
    expect((await renewing).renew).toEqual([{ kind: 'renewed' }, { kind: 'lost' }]);
    expect(await backend.inspect('k', LIMIT_MS)).toBeNull();
  } finally {
    await factory.close();
    await backend.close();
    await database.query(`DROP TABLE ${table}`);
    await database.destroy();
  }
});

it('a grant that has waited for longer than the token memory is not used: its fencing token may be old, on postgres', async () => {
  const table = `clean_${randomUUID().replaceAll('-', '')}`;
  const options = dataSourceOptions(postgresStore());
  const backend = typeormBackend({ dataSource: options, table, tokenMemoryMs: TOKEN_MEMORY_MS });
  const other = typeormBackend({ dataSource: options, table });
  const { dialect, table: lockTable } = resolveTypeormOptions({ dataSource: options, table });
  const factory = new ConnectionFactory(dialect, () => options);
  const [watcher, ...owners] = await Promise.all(
    ['watcher', 'a', 'b'].map(() =>
      new DataSource({ ...options, poolSize: 1 } as DataSourceOptions).initialize(),
    ),
  );
  try {
    const old = [request('a'), request('b')];
    await other.execute({ acquire: old }, LIMIT_MS);
    await other.execute({ release: old }, LIMIT_MS);
    for (const [index, owner] of owners.entries()) {
      await owner.query('BEGIN');
      await owner.query(`UPDATE ${table} SET instance = instance WHERE key = '${old[index]!.key}'`);
    }
    const wanted = ['a', 'b', 'k'].map((key) => request(key));
    const acquiring = backend.execute({ acquire: wanted }, LIMIT_MS);
    await until(async () => (await waitersFor(watcher!, table)).length > 0);
    const used = request('k');
    expect((await other.execute({ acquire: [used] }, LIMIT_MS)).acquire[0]?.kind).toBe('granted');
    await other.execute({ release: [used] }, LIMIT_MS);
    const session = (await factory.connect()).openSession(new Timeout(LIMIT_MS));
    await dialect.createStatements(lockTable).removeIdle(session, ['k'], 0);
    // A statement waits for one row for at most a second.
    for (const owner of owners) {
      await owner.query('SELECT pg_sleep(0.6)');
      await owner.query('COMMIT');
    }
    const { acquire } = await acquiring;
    expect(acquire.map(({ kind }) => kind)).toEqual(['unknown', 'unknown', 'unknown']);
  } finally {
    await factory.close();
    await Promise.all([backend.close(), other.close()]);
    await watcher!.query(`DROP TABLE ${table}`);
    for (const one of [watcher!, ...owners]) await one.destroy();
  }
});
