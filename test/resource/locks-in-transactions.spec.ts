import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Column, DataSource, Entity, type EntityManager, PrimaryColumn, QueryFailedError } from 'typeorm';
import { transactionLock, typeormBackend, withRowLock } from '../../lib/backends/typeorm/index.js';
import { LockTimeoutError, LockUnavailableError } from '../../lib/core/errors.js';
import { serviceUrl } from '../support/environment.js';
import { dataSourceOptions, mariadbStore, sqlServers } from '../support/stores.js';
import { until } from '../support/until.js';
import { databases, tablesOn } from './databases.js';
import { openGate } from './gate.js';
import { lockTableOf } from './lock-table.js';
import { expectIdlePool, killSession, waitersFor } from './sessions.js';

@Entity()
class Counter {
  @PrimaryColumn('varchar', { length: 60 })
  id!: string;

  @Column('int')
  value!: number;
}

const newCounter = async ({ manager }: DataSource): Promise<string> => {
  const id = randomUUID();
  await manager.insert(Counter, { id, value: 0 });
  return id;
};

const addOne = ({ id, value }: Counter, manager: EntityManager) =>
  manager.update(Counter, { id }, { value: value + 1 });

describe.each(databases)('with a cache that is on for every read, on %s', (_, storeOf) => {
  let database: DataSource;
  const cache = { alwaysEnabled: true, duration: 600_000, type: 'database' as const };
  tablesOn(storeOf, [Counter], (opened) => (database = opened), { cache });

  it('a locked row is read from the database', async () => {
    const id = await newCounter(database);
    for (const value of [0, 1, 2]) {
      await withRowLock(database, Counter, { id }, async (counter, manager) => {
        expect(counter.value).toBe(value);
        await addOne(counter, manager);
      });
    }
  });
});

describe.each(databases)('two data sources on %s', (_, storeOf) => {
  let database: DataSource;
  let other: DataSource;
  tablesOn(storeOf, [Counter], (opened) => (database = opened));
  const table = lockTableOf(() => database);
  beforeAll(async () => {
    other = await new DataSource({ ...database.options, synchronize: false }).initialize();
  });
  afterAll(() => other.destroy());

  it('exclude each other from a row', async () => {
    const id = await newCounter(database);
    const gate = openGate();
    const holder = withRowLock(database, Counter, { id }, async (counter, manager) => {
      await gate.pass();
      await addOne(counter, manager);
    });
    await gate.reached;
    for (const waitMs of [0, 20]) {
      const late = withRowLock(other, Counter, { id }, addOne, { waitMs });
      await expect(late).rejects.toThrow(LockTimeoutError);
    }
    expect(await withRowLock(other, Counter, { id }, addOne, { onContention: 'skip' })).toBeNull();
    const waiter = withRowLock(other, Counter, { id }, addOne, { waitMs: Infinity });
    gate.open();
    await Promise.all([holder, waiter]);
    expect(await other.manager.findOneBy(Counter, { id })).toMatchObject({ value: 2 });
  });

  it('exclude each other from a key', async () => {
    const key = randomUUID();
    const gate = openGate();
    const lock = (on: DataSource, waitMs: number, work?: () => Promise<void>) =>
      on.transaction(async (manager) => {
        await transactionLock(manager, key, { waitMs, table });
        await work?.();
      });
    const holder = lock(database, 0, () => gate.pass());
    await gate.reached;
    for (const waitMs of [0, 20]) await expect(lock(other, waitMs)).rejects.toThrow(LockTimeoutError);
    const waiter = lock(other, Infinity);
    gate.open();
    await Promise.all([holder, waiter]);
  });
});

const replicated = [
  ['postgres', 'TEST_POSTGRES_URL', 'postgres'],
  ['mariadb', 'TEST_MARIADB_URL', 'mysql'],
] as const;

describe.each(replicated)('with a replica, on %s', (type, variable, otherDatabase) => {
  const at = serviceUrl(variable);
  let database: DataSource;
  const replication = {
    master: { url: at },
    // It has no tables, so a statement that is sent to it fails.
    slaves: [{ url: at.replace(/\/\w+$/, `/${otherDatabase}`) }],
  };
  tablesOn(
    () => ({ database: { type, at } }),
    [Counter],
    (opened) => (database = opened),
    { replication },
  );

  it('a row is locked on the primary', async () => {
    const id = await newCounter(database);
    await expect(database.manager.findOneBy(Counter, { id })).rejects.toThrow(QueryFailedError);
    expect(await withRowLock(database, Counter, { id }, ({ value }) => value)).toBe(0);
  });
});

describe.each(sqlServers)('a lock of a transaction on %s', (name, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Counter], (opened) => (database = opened));
  const table = lockTableOf(() => database);

  const lockKey = (key: string, waitMs: number, work: () => unknown = () => undefined) =>
    database.transaction(async (manager) => {
      await transactionLock(manager, key, { waitMs, table });
      await work();
    });

  it('is refused at once in the transaction of the caller, which then ends', async () => {
    const id = await newCounter(database);
    const gate = openGate();
    const holder = withRowLock(database, Counter, { id }, () => gate.pass());
    await gate.reached;
    const late = database.transaction((manager) =>
      withRowLock(manager, Counter, { id }, addOne, { waitMs: 0 }),
    );
    await expect(late).rejects.toThrow(LockTimeoutError);
    await expect(late).rejects.toThrow('roll it back, and repeat all of it');
    gate.open();
    await holder;
    await expectIdlePool(database);
  });

  it('a connection that is killed while it waits for a row loses nothing', async () => {
    const id = await newCounter(database);
    const gate = openGate();
    const holder = withRowLock(database, Counter, { id }, async (counter, manager) => {
      await gate.pass();
      await addOne(counter, manager);
    });
    await gate.reached;
    const killed = withRowLock(database, Counter, { id }, addOne, { waitMs: Infinity, attempts: 5 });
    const failure = expect(killed).rejects.toThrow(QueryFailedError);
    const statement = database.getMetadata(Counter).tableName;
    await until(async () => (await waitersFor(database, statement)).length === 1);
    for (const session of await waitersFor(database, statement)) await killSession(database, session);
    await failure;
    gate.open();
    await holder;
    await withRowLock(database, Counter, { id }, addOne);
    expect(await database.manager.findOneBy(Counter, { id })).toMatchObject({ value: 2 });
    await expectIdlePool(database);
  });

  it('a connection that is killed while it waits for a key does not block the next one', async () => {
    const key = randomUUID();
    const gate = openGate();
    const holder = lockKey(key, 0, () => gate.pass());
    await gate.reached;
    const failure = expect(lockKey(key, Infinity)).rejects.toThrow(QueryFailedError);
    const statement = name === 'postgres' ? 'pg_advisory_xact_lock' : table;
    await until(async () => (await waitersFor(database, statement)).length === 1);
    for (const session of await waitersFor(database, statement)) await killSession(database, session);
    await failure;
    gate.open();
    await holder;
    await lockKey(key, 0);
    await expectIdlePool(database);
  });

  it('transactions that wait for one that is first and rolls back get the key, or may repeat', async () => {
    const key = randomUUID();
    const gate = openGate();
    const first = lockKey(key, 0, async () => {
      await gate.pass();
      throw new Error('of the work');
    });
    const failure = expect(first).rejects.toThrow('of the work');
    await gate.reached;
    const waiters = Array.from({ length: 5 }, () => lockKey(key, Infinity));
    const statement = name === 'postgres' ? 'pg_advisory_xact_lock' : table;
    await until(async () => (await waitersFor(database, statement)).length === 5);
    gate.open();
    await failure;
    const results = await Promise.allSettled(waiters);
    const rejected = results.filter(({ status }) => status === 'rejected') as PromiseRejectedResult[];
    for (const { reason } of rejected) expect(reason).toBeInstanceOf(LockUnavailableError);
    expect(rejected.length).toBeLessThan(name === 'postgres' ? 1 : 5);
    await Promise.all(rejected.map(() => lockKey(key, Infinity)));
    await expectIdlePool(database);
  });

  it('a key keeps transactions of the strictest level that it allows from losing a change, if they are repeated', async () => {
    const id = await newCounter(database);
    const level = name === 'postgres' ? 'READ COMMITTED' : 'SERIALIZABLE';
    const add = async (): Promise<void> => {
      for (;;) {
        try {
          await database.transaction(level, async (manager) => {
            await transactionLock(manager, id, { waitMs: Infinity, table });
            await addOne(await manager.findOneByOrFail(Counter, { id }), manager);
          });
          return;
        } catch (cause) {
          if (!(cause instanceof LockUnavailableError))
            expect(String(cause)).toMatch(/could not serialize|Deadlock/);
        }
      }
    };
    await Promise.all(Array.from({ length: 8 }, add));
    expect(await database.manager.findOneBy(Counter, { id })).toMatchObject({ value: 8 });
    await expectIdlePool(database);
  });
});

describe('the row of a transaction lock on mariadb', () => {
  it('is removed with idle rows, and inserted again', async () => {
    const table = `spec_${randomUUID().replaceAll('-', '_')}`;
    const options = dataSourceOptions(mariadbStore());
    const database = await new DataSource(options).initialize();
    const backend = typeormBackend({ dataSource: options, table, createTable: true, tokenMemoryMs: 1_000 });
    const acquire = [{ key: 'lease', holder: randomUUID(), leaseMs: 100, instance: 'spec' }];
    await backend.execute({ acquire }, 20_000);
    const lock = () => database.transaction((manager) => transactionLock(manager, 'k', { table }));
    const countRows = async () => {
      const sql = `SELECT * FROM ${table} WHERE \`key\` LIKE '%transaction:k'`;
      return (await database.query<unknown[]>(sql)).length;
    };
    await lock();
    expect(await countRows()).toBe(1);
    await until(async () => (await countRows()) === 0);
    await lock();
    expect(await countRows()).toBe(1);
    await backend.close();
    await database.query(`DROP TABLE ${table}`);
    await database.destroy();
  });
});
