import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  type EntityManager,
  Equal,
  In,
  IsNull,
  Not,
  PrimaryColumn,
  type UpdateEvent,
} from 'typeorm';
import { FencingToken, fencedFindOne, fencedUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockLostError } from '../../lib/core/errors.js';
import { sqlServers } from '../support/stores.js';
import { until } from '../support/until.js';
import { beforeStatement } from './before-statement.js';
import { databases, strictDatabases, tablesOn } from './databases.js';
import { ORDERS, runInOrder } from './interleavings.js';
import { waitersFor } from './sessions.js';

@Entity()
class Account {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 40, unique: true })
  name!: string;

  @Column('int', { default: 0 })
  count!: number;

  @DeleteDateColumn()
  deletedAt?: Date | null;

  @FencingToken()
  fencingToken?: bigint;
}

/** Beyond the safe integers. */
const HUGE = 2n ** 53n + 1n;

let nextId = 1;
const newAccount = async ({ manager }: DataSource): Promise<number> => {
  nextId += 1;
  await manager.insert(Account, { id: nextId, name: `account ${nextId}` });
  return nextId;
};

const prefixOf = ({ options }: DataSource) => String(options.entityPrefix);

/** A table without an entity. */
const ledgerOf = (database: DataSource) => ({
  table: `${prefixOf(database)}ledger`,
  fencingToken: 'lock_token',
});

const countOf = async ({ manager }: DataSource, id: number) =>
  (await manager.findOneByOrFail(Account, { id })).count;

const isRefusal = (error: unknown) => error instanceof LockLostError;

describe.each([...databases, ...strictDatabases])('a fenced read on %s', (_, storeOf, more = {}) => {
  let database: DataSource;
  tablesOn(storeOf, [Account], (opened) => (database = opened), more);

  /** As in the docs: read, then write what was read and one more. */
  function holder(where: Partial<Pick<Account, 'id' | 'name'>>, token: bigint) {
    let count = NaN;
    return {
      async read() {
        count = (await fencedFindOne(database, Account, where, token))!.count;
      },
      write: () => fencedUpdate(database, Account, where, { count: count + 1 }, token),
    };
  }

  describe.each(['id', 'name'] as const)('by its %s', (column) => {
    it.each(ORDERS)('loses no update where %s, %s, %s, %s', async (...order) => {
      const id = await newAccount(database);
      const where = column === 'id' ? { id } : { name: `account ${id}` };
      const accepted = await runInOrder(order, { old: holder(where, 5n), new: holder(where, 6n) }, isRefusal);
      expect(accepted).toBeGreaterThan(0);
      expect(await countOf(database, id)).toBe(accepted);
    });
  });

  it('refuses an older token, and a write with one from then on', async () => {
    const id = await newAccount(database);
    await fencedFindOne(database, Account, { id }, HUGE);
    const stale = { key: 'account', fencingToken: HUGE - 1n };
    const refused: unknown = await fencedFindOne(database, Account, { id }, stale).catch(
      (error: unknown) => error,
    );
    expect(refused).toBeInstanceOf(LockLostError);
    expect(refused).toMatchObject({ code: 'LOCK_LOST', key: 'account' });
    await expect(fencedUpdate(database, Account, { id }, { count: 9 }, stale)).rejects.toThrow(LockLostError);
    expect(await countOf(database, id)).toBe(0);
  });

  it('returns the entity as find does, without the token', async () => {
    const id = await newAccount(database);
    const account = await fencedFindOne(database, Account, { id, name: `account ${id}` }, 5n);
    expect(account).toBeInstanceOf(Account);
    expect(account).toEqual(await database.manager.findOneBy(Account, { id }));
    expect(await fencedFindOne(database, Account, { id }, 5n)).toEqual(account);
  });

  it('returns null if there is no such row', async () => {
    expect(await fencedFindOne(database, Account, { id: -1 }, 5n)).toBeNull();
    const id = await newAccount(database);
    expect(await fencedFindOne(database, Account, { id, count: 7 }, 5n)).toBeNull();
    await database.manager.softDelete(Account, { id });
    expect(await fencedFindOne(database, Account, { id }, 6n)).toBeNull();
  });

  it('and writes leave out rows that are deleted softly, unless the condition is about them', async () => {
    const [id, deleted] = [await newAccount(database), await newAccount(database)];
    for (const one of [id, deleted]) await database.manager.update(Account, { id: one }, { count: id });
    await fencedUpdate(database, Account, { id: deleted }, {}, 9n);
    await database.manager.softDelete(Account, { id: deleted });
    expect((await fencedFindOne(database, Account, { count: id }, 5n))?.id).toBe(id);
    expect(await fencedUpdate(database, Account, { count: id }, { count: -id }, 5n)).toBe(true);
    expect(await fencedUpdate(database, Account, { id: deleted }, { count: 0 }, 9n)).toBe(false);
    const restored = { deletedAt: null };
    const where = { id: deleted, deletedAt: Not(IsNull()) };
    await expect(fencedUpdate(database, Account, where, restored, 8n)).rejects.toThrow(LockLostError);
    expect(await fencedUpdate(database, Account, where, restored, 9n)).toBe(true);
    expect([await countOf(database, id), await countOf(database, deleted)]).toEqual([-id, id]);
  });

  it('is rejected if several rows match', async () => {
    const ids = [await newAccount(database), await newAccount(database)];
    const read = fencedFindOne(database, Account, { id: In(ids) }, 5n);
    await expect(read).rejects.toThrow(LockConfigError);
    await expect(read).rejects.toThrow('which several do');
    for (const id of ids) expect(await fencedUpdate(database, Account, { id }, { count: 1 }, 4n)).toBe(true);
  });

  it('needs no entity', async () => {
    const fenced = ledgerOf(database);
    const { table } = fenced;
    await database.query(`CREATE TABLE ${table} (id INT PRIMARY KEY, amount INT, lock_token BIGINT)`);
    try {
      await database.query(`INSERT INTO ${table} VALUES (1, 100, NULL)`);
      expect(await fencedFindOne(database, fenced, { id: 1 }, HUGE)).toMatchObject({ id: 1, amount: 100 });
      await expect(fencedFindOne(database, fenced, { id: 1 }, HUGE - 1n)).rejects.toThrow(LockLostError);
      expect(await fencedFindOne(database, fenced, { id: 2 }, HUGE)).toBeNull();
    } finally {
      await database.query(`DROP TABLE ${table}`);
    }
  });

  it('is part of the transaction of its manager', async () => {
    const id = await newAccount(database);
    const work = database.transaction(async (manager) => {
      await fencedFindOne(manager, Account, { id }, 7n);
      throw new Error('of the caller');
    });
    await expect(work).rejects.toThrow('of the caller');
    expect(await fencedFindOne(database, Account, { id }, 6n)).toMatchObject({ id });
  });

  it('is not attempted with a lock that is no longer valid', async () => {
    const id = await newAccount(database);
    const lock = { key: 'account', fencingToken: 5n, isValid: () => false };
    const attempts = [
      () => fencedFindOne(database, Account, { id }, lock),
      () => fencedUpdate(database, Account, { id }, { count: 1 }, lock),
    ];
    for (const attempt of attempts) {
      await expect(attempt()).rejects.toThrow(LockLostError);
      await expect(attempt()).rejects.toMatchObject({ key: 'account' });
    }
    expect(await fencedUpdate(database, Account, { id }, {}, 4n)).toBe(true);
  });

  it('is not attempted if an argument is missing', async () => {
    const attempts = [
      () => fencedFindOne(database, Account, {}, 5n),
      () => fencedFindOne(database, Account, { id: undefined as unknown as number }, 5n),
      () => fencedFindOne(database, Account, { id: 1 }, undefined as unknown as bigint),
      () => fencedFindOne({} as DataSource, Account, { id: 1 }, 5n),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
  });
});

// MySQL and MariaDB lock all rows that they read, so none begins to match.
describe.each(databases.filter(([name]) => !['mariadb', 'mysql'].includes(name)))(
  'a fenced read on %s',
  (_, storeOf) => {
    let database: DataSource;
    tablesOn(storeOf, [Account], (opened) => (database = opened));

    it('writes no token into a second row that begins to match meanwhile', async () => {
      const [id, other] = [await newAccount(database), await newAccount(database)];
      await database.manager.update(Account, { id }, { count: id });
      const runner = database.createQueryRunner();
      beforeStatement(runner, 'UPDATE', () => database.manager.update(Account, { id: other }, { count: id }));
      const reading = fencedFindOne(runner.manager, Account, { count: id }, 9n);
      // SQLite sees both rows in its only statement.
      await reading.catch((error: unknown) => expect(error).toBeInstanceOf(LockConfigError));
      await runner.release();
      expect(await fencedUpdate(database, Account, { id: other }, {}, 8n)).toBe(true);
    });
  },
);

describe.each(sqlServers)('in a transaction on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Account], (opened) => {
    database = opened;
    // Its read must not decide what the transaction sees, either.
    const audit = ({ manager }: UpdateEvent<Account>) => manager.findOneBy(Account, { id: -1 });
    database.subscribers.push({ listenTo: () => Account, beforeUpdate: audit });
  });

  it.each<[string, (manager: EntityManager, id: number, token: bigint) => Promise<unknown>]>([
    ['its id', (manager, id, token) => fencedFindOne(manager, Account, { id }, token)],
    ['an operator', (manager, id, token) => fencedFindOne(manager, Account, { id: Equal(id) }, token)],
    ['its name', (manager, id, token) => fencedFindOne(manager, Account, { name: `account ${id}` }, token)],
    [
      'the id in a table without an entity',
      (manager, id, token) => fencedFindOne(manager, ledgerOf(database), { id }, token),
    ],
  ])('a fenced read by %s waits before it decides what later reads see', async (_, read) => {
    const [id, other] = [await newAccount(database), await newAccount(database)];
    const { table } = ledgerOf(database);
    await database.query(`CREATE TABLE ${table} (id INT PRIMARY KEY, lock_token BIGINT)`);
    await database.query(`INSERT INTO ${table} VALUES (${id}, NULL)`);
    let seen: Promise<number> | undefined;
    await database.transaction(async (manager) => {
      await read(manager, id, 5n);
      seen = database.transaction(async (next) => {
        await read(next, id, 6n);
        return (await next.findOneByOrFail(Account, { id: other })).count;
      });
      await until(async () => (await waitersFor(database, prefixOf(database))).length > 0);
      await manager.update(Account, { id: other }, { count: 1 });
    });
    expect(await seen).toBe(1);
    await database.query(`DROP TABLE ${table}`);
  });

  it('a fenced read sees what others have written since the first read, and the next holder waits', async () => {
    const id = await newAccount(database);
    let next: Promise<Account | null> | undefined;
    await database.transaction(async (manager) => {
      await manager.findOneBy(Account, { id: -1 });
      await fencedUpdate(database, Account, { id }, { count: 1 }, 5n);
      expect(await fencedFindOne(manager, Account, { id }, 6n)).toMatchObject({ count: 1 });
      next = fencedFindOne(database, Account, { id }, 7n);
      await fencedUpdate(manager, Account, { id }, { count: 2 }, 6n);
    });
    expect(await next).toMatchObject({ count: 2 });
  });
});
