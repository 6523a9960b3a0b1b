import { AsyncLocalStorage } from 'node:async_hooks';
import { describe, expect, it } from 'vitest';
import {
  Column,
  DataSource,
  type DataSourceOptions,
  Entity,
  type EntitySubscriberInterface,
  In,
  PrimaryColumn,
  Raw,
} from 'typeorm';
import { FencingToken, fencedFindOne, fencedUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockLostError } from '../../lib/core/errors.js';
import { serviceUrl } from '../support/environment.js';
import { mariadbStore, postgresStore, sqlServers } from '../support/stores.js';
import { beforeStatement } from './before-statement.js';
import { databases, inSession, strictDatabases, tablesOn } from './databases.js';

@Entity()
class Account {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  balance!: number;

  @FencingToken()
  fencingToken?: bigint;
}

@Entity()
class Booking {
  /** Finer than the resolution of a `Date`. */
  @PrimaryColumn('timestamp', { precision: 6 })
  begins!: Date;

  @PrimaryColumn('varchar', { length: 40 })
  room!: string;

  @Column({ type: 'varchar', length: 40, default: 'nobody' })
  guest!: string;

  @FencingToken()
  fencingToken?: bigint;
}

@Entity()
class Unfenced {
  @PrimaryColumn('int')
  id!: number;
}

/** Beyond the safe integers. */
const HUGE = 2n ** 53n + 1n;

let nextId = 1;
const newAccount = async ({ manager }: DataSource): Promise<number> => {
  nextId += 1;
  await manager.insert(Account, { id: nextId, balance: 100 });
  return nextId;
};

const balanceOf = async ({ manager }: DataSource, id: number) =>
  (await manager.findOneByOrFail(Account, { id })).balance;

const tokenOf = async ({ manager }: DataSource, id: number) => {
  const account = await manager.findOneOrFail(Account, {
    where: { id },
    select: { id: true, fencingToken: true },
  });
  return account.fencingToken;
};

describe.each(databases)('a row that a fenced update of another process has written, on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Account], (opened) => (database = opened));

  it.each(['token', 'locked', 'rows', 'value'])(
    'is safe from a parameter of Raw() with the name %s',
    async (name) => {
      const id = await newAccount(database);
      const isBalance = (balance: number) => Raw((column) => `${column} = :${name}`, { [name]: balance });
      await fencedUpdate(database, Account, { id }, { balance: 50 }, 20n);
      for (const one of [id, In([id])]) {
        const where = { id: one, balance: isBalance(50) };
        await expect(fencedUpdate(database, Account, where, { balance: 1 }, 10n)).rejects.toThrow(
          LockLostError,
        );
        await expect(fencedFindOne(database, Account, where, 10n)).rejects.toThrow(LockLostError);
        expect(await fencedFindOne(database, Account, where, 20n)).toMatchObject({ balance: 50 });
        expect(await fencedUpdate(database, Account, where, { balance: 60 }, 20n)).toBe(true);
        expect(await balanceOf(database, id)).toBe(60);
        await fencedUpdate(database, Account, { id }, { balance: 50 }, 20n);
      }
      expect(await tokenOf(database, id)).toBe(20n);
    },
  );

  it('keeps its token when it is saved, also in an object that was saved before', async () => {
    const inserted = { id: (nextId += 1), balance: 100 };
    await database.getRepository(Account).save(inserted);
    const other = await new DataSource(database.options).initialize();
    await fencedUpdate(other, Account, { id: inserted.id }, { balance: 1 }, 7n);
    await other.destroy();
    await database.getRepository(Account).save({ ...inserted, balance: 2 });
    expect(await tokenOf(database, inserted.id)).toBe(7n);
    const found = await database.manager.findOneByOrFail(Account, { id: inserted.id });
    for (found.balance = 3; found.balance < 6; found.balance += 1) {
      await database.manager.save(found);
      expect(await tokenOf(database, found.id)).toBe(7n);
    }
  });
});

describe.each([...databases, ...strictDatabases])('a fenced update on %s', (_, storeOf, more = {}) => {
  let database: DataSource;
  const write = (id: number, balance: number, token: bigint) =>
    fencedUpdate(database, Account, { id }, { balance }, token);

  tablesOn(storeOf, [Account, Unfenced], (opened) => (database = opened), more);

  it('is written with the first token, the same again and a newer one', async () => {
    const id = await newAccount(database);
    for (const [balance, token] of [
      [1, 5n],
      [1, 5n],
      [2, 5n],
      [3, 7n],
    ] as const) {
      expect(await write(id, balance, token)).toBe(true);
      expect(await balanceOf(database, id)).toBe(balance);
      expect(await tokenOf(database, id)).toBe(token);
    }
  });

  it('is refused with an older token, and leaves the row as it is', async () => {
    const id = await newAccount(database);
    await write(id, 1, 7n);
    const stale = { key: 'account', fencingToken: 6n };
    const refused: unknown = await fencedUpdate(database, Account, { id }, { balance: 2 }, stale).catch(
      (error: unknown) => error,
    );
    expect(refused).toBeInstanceOf(LockLostError);
    expect(refused).toMatchObject({ code: 'LOCK_LOST', key: 'account' });
    expect(String(refused)).toMatch(/Account .*token 6: the newer token 7 has written/);
    expect(await balanceOf(database, id)).toBe(1);
    expect(await tokenOf(database, id)).toBe(7n);
  });

  it('returns false if there is no such row', async () => {
    expect(await write(-1, 1, 5n)).toBe(false);
    const id = await newAccount(database);
    await write(id, 1, 5n);
    expect(await fencedUpdate(database, Account, { id, balance: 100 }, { balance: 2 }, 5n)).toBe(false);
  });

  it('distinguishes tokens that a number does not', async () => {
    const id = await newAccount(database);
    await write(id, 1, HUGE);
    await expect(write(id, 2, HUGE - 1n)).rejects.toThrow(`${HUGE} has written`);
    expect(await write(id, 3, HUGE)).toBe(true);
    expect(await write(id, 4, HUGE + 1n)).toBe(true);
    await expect(write(id, 5, HUGE)).rejects.toThrow(LockLostError);
  });

  it('is part of the transaction of its manager', async () => {
    const id = await newAccount(database);
    await write(id, 1, 5n);
    const work = database.transaction(async (manager) => {
      expect(await fencedUpdate(manager, Account, { id }, { balance: 2 }, 7n)).toBe(true);
      throw new Error('of the caller');
    });
    await expect(work).rejects.toThrow('of the caller');
    expect(await balanceOf(database, id)).toBe(1);
    expect(await tokenOf(database, id)).toBe(5n);
    await database.transaction((manager) => fencedUpdate(manager, Account, { id }, { balance: 3 }, 6n));
    expect(await balanceOf(database, id)).toBe(3);
  });

  it('keeps what the newest token wrote when many write at once', async () => {
    const id = await newAccount(database);
    const writes = Array.from({ length: 20 }, (_, index) => {
      const token = ((index * 7) % 20) + 1;
      return write(id, token, BigInt(token));
    });
    for (const outcome of await Promise.allSettled(writes)) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(LockLostError);
    }
    expect(await balanceOf(database, id)).toBe(20);
  });

  it('of several rows is refused if one row has a newer token', async () => {
    const ids = [await newAccount(database), await newAccount(database)];
    const writeBoth = (balance: number, token: bigint) =>
      database.transaction((manager) => fencedUpdate(manager, Account, { id: In(ids) }, { balance }, token));
    expect(await writeBoth(1, 5n)).toBe(true);
    await write(ids[1]!, 2, 7n);
    await expect(writeBoth(3, 6n)).rejects.toThrow(LockLostError);
    expect(await balanceOf(database, ids[0]!)).toBe(1);
    expect(await writeBoth(4, 7n)).toBe(true);
  });

  it('by another condition than the id never reports a rejection although it wrote', async () => {
    const ids = [];
    for (let round = 1; round <= 40; round += 1) ids.push(await newAccount(database));
    const rounds = ids.map(async (id) => {
      const among = { id: In([id]) };
      const writes = await Promise.allSettled([
        fencedUpdate(database, Account, among, { balance: 1 }, 5n),
        fencedUpdate(database, Account, among, {}, 6n),
      ]);
      const hasWritten = (await balanceOf(database, id)) === 1;
      const refusal = { status: 'rejected', reason: expect.any(LockLostError) as unknown };
      const written = { status: 'fulfilled', value: true };
      expect(writes).toEqual([hasWritten ? written : refusal, written]);
    });
    await Promise.all(rounds);
  });

  it('of several rows writes none if one has a newer token, even if the caller continues after the error', async () => {
    const ids = [await newAccount(database), await newAccount(database)];
    await write(ids[1]!, 2, 7n);
    const late = () => fencedUpdate(database, Account, { id: In(ids) }, { balance: 3 }, 6n);
    await expect(late()).rejects.toThrow(LockLostError);
    await database.transaction(async (manager) => {
      const inside = fencedUpdate(manager, Account, { id: In(ids) }, { balance: 3 }, 6n);
      await expect(inside).rejects.toThrow(LockLostError);
    });
    expect([await balanceOf(database, ids[0]!), await balanceOf(database, ids[1]!)]).toEqual([100, 2]);
  });

  it('rejects older tokens from then on without changing anything else', async () => {
    const id = await newAccount(database);
    expect(await fencedUpdate(database, Account, { id }, {}, 5n)).toBe(true);
    await expect(write(id, 1, 4n)).rejects.toThrow(LockLostError);
  });

  it('needs no entity', async () => {
    const table = `${database.options.entityPrefix}ledger`;
    await database.query(`CREATE TABLE ${table} (id INT PRIMARY KEY, amount INT, lock_token BIGINT)`);
    try {
      await database.query(`INSERT INTO ${table} VALUES (1, 100, NULL)`);
      const fenced = { table, fencingToken: 'lock_token' };
      const writeOne = (amount: number, token: bigint) =>
        fencedUpdate(database, fenced, { id: 1 }, { amount }, token);
      expect(await writeOne(1, HUGE)).toBe(true);
      expect(await writeOne(1, HUGE)).toBe(true);
      await expect(writeOne(2, HUGE - 1n)).rejects.toThrow(`${HUGE} has written`);
      expect(await database.query(`SELECT amount FROM ${table}`)).toEqual([{ amount: 1 }]);
      expect(await fencedUpdate(database, fenced, { id: 2 }, { amount: 1 }, HUGE)).toBe(false);
    } finally {
      await database.query(`DROP TABLE ${table}`);
    }
  });

  it('has a token that is not loaded unless asked for', async () => {
    const id = await newAccount(database);
    await write(id, 1, 5n);
    expect(JSON.stringify(await database.manager.findOneBy(Account, { id }))).toBe(
      `{"id":${id},"balance":1}`,
    );
    const saved = await database.manager.save(Account, { id, balance: 2 });
    expect(JSON.parse(JSON.stringify(saved))).toMatchObject({ id, balance: 2 });
    expect(await tokenOf(database, id)).toBe(5n);
  });

  it('is not attempted if an argument is missing', async () => {
    const table = database.getMetadata(Account).tableName;
    const attempts = [
      () => fencedUpdate(database, Account, { id: undefined as unknown as number }, { balance: 1 }, 5n),
      () => fencedUpdate(database, Account, {}, { balance: 1 }, 5n),
      () => fencedUpdate(database, { table: 'ledger', fencingToken: 'token' }, { id: In([1]) }, {}, 5n),
      // Some drivers write an object as a comparison, which is true for each row.
      () => fencedUpdate(database, { table: 'ledger', fencingToken: 'token' }, { id: { id: 1 } }, {}, 5n),
      () => fencedUpdate(database, Account, { id: 1 }, { balance: 1 }, 5 as unknown as bigint),
      () => fencedUpdate(database, Account, { id: 1 }, { balance: 1 }, undefined as unknown as bigint),
      () => fencedUpdate(database, Unfenced, { id: 1 }, {}, 5n),
      () => fencedUpdate(database, Account, { id: 1 }, { balance: 1, fencingToken: 9n }, 5n),
      () => fencedUpdate(database, { table: 'ledger', fencingToken: 'token' }, { id: 1 }, { Token: 9n }, 5n),
      () => fencedUpdate({} as DataSource, Account, { id: 1 }, { balance: 1 }, 5n),
      () => fencedUpdate(database, { table, fencingToken: 'fencingToken' }, { id: 1 }, { balance: 1 }, 5n),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
  });

  // TypeORM before 1.0 puts names between quotes as they are.
  it.each(['balance" = 0 --', 'balance` = 0 --', 'bal\0ance', 'balance = ?', 'a:fenced0', ''])(
    'takes %j for no name',
    async (name) => {
      const ledger = { table: 'ledger', fencingToken: 'lock_token' };
      const attempts = [
        () => fencedUpdate(database, { ...ledger, table: name }, { id: 1 }, { amount: 1 }, 5n),
        () => fencedUpdate(database, { ...ledger, fencingToken: name }, { id: 1 }, { amount: 1 }, 5n),
        () => fencedUpdate(database, ledger, { [name]: 1 }, { amount: 1 }, 5n),
        () => fencedUpdate(database, ledger, { id: 1 }, { [name]: 1 }, 5n),
      ];
      for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
    },
  );
});

describe.each(databases)('fenced updates at once in a transaction on %s', (_, storeOf) => {
  let database: DataSource;
  // The next transaction finds what one has left on its connection.
  tablesOn(storeOf, [Account], (opened) => (database = opened), { poolSize: 1 });

  const newPair = async () => [await newAccount(database), await newAccount(database)] as const;
  const balancesOf = async (ids: readonly number[]) => {
    const found = await database.transaction((manager) =>
      manager.find(Account, { where: { id: In(ids) }, order: { id: 'ASC' } }),
    );
    return found.map(({ balance }) => balance);
  };
  const transfer = (manager: DataSource['manager'], ids: readonly number[]) => [
    fencedUpdate(manager, Account, { id: In([ids[0]]) }, { balance: 50 }, 5n),
    fencedUpdate(manager, Account, { id: In([ids[1]]) }, { balance: 150 }, 5n),
  ];

  it('are all committed', async () => {
    const ids = await newPair();
    const written = await database.transaction((manager) => Promise.all(transfer(manager, ids)));
    expect(written).toEqual([true, true]);
    expect(await balancesOf(ids)).toEqual([50, 150]);
  });

  it.each([0, 1])('are all undone where one of them is refused (%i)', async (refusing) => {
    const ids = await newPair();
    await fencedUpdate(database, Account, { id: ids[refusing]! }, {}, 7n);
    const work = database.transaction((manager) => Promise.all(transfer(manager, ids)));
    await expect(work).rejects.toThrow('7 has written');
    expect(await balancesOf(ids)).toEqual([100, 100]);
  });

  it('are all undone where another statement fails', async () => {
    const ids = await newPair();
    const work = database.transaction((manager) =>
      Promise.all([manager.query('SELECT no_such_column'), ...transfer(manager, ids)]),
    );
    await expect(work).rejects.toThrow('no_such_column');
    expect(await balancesOf(ids)).toEqual([100, 100]);
  });

  it('undo nothing else if one is refused and the caller continues', async () => {
    const ids = await newPair();
    await fencedUpdate(database, Account, { id: ids[0] }, {}, 7n);
    nextId += 1;
    const other = nextId;
    await database.transaction(async (manager) => {
      const [refused, inserted] = await Promise.allSettled([
        fencedUpdate(manager, Account, { id: In([ids[0]]) }, { balance: 1 }, 5n),
        manager.insert(Account, { id: other, balance: 1 }),
      ]);
      expect([refused.status, inserted.status]).toEqual(['rejected', 'fulfilled']);
    });
    expect(await balancesOf([ids[0], other])).toEqual([100, 1]);
  });

  it('that begin while the transaction ends are part of it, or refused', async () => {
    const ids = await newPair();
    let late: Promise<boolean>[] = [];
    await database.transaction(async (manager) => {
      await manager.query('SELECT 1');
      void Promise.resolve().then(() => (late = transfer(manager, ids)));
    });
    const outcomes = await Promise.allSettled(late);
    const written = outcomes.map(
      ({ status }, index) => (status === 'fulfilled' ? [50, 150] : [100, 100])[index],
    );
    expect(await balancesOf(ids)).toEqual(written);
  });

  it('are committed after a nested transaction that is not awaited', async () => {
    const ids = await newPair();
    let nested: Promise<unknown> | undefined;
    await database.transaction(async (manager) => {
      await fencedUpdate(manager, Account, { id: ids[0] }, { balance: 50 }, 5n);
      nested = manager.transaction(async (inner) => {
        await inner.update(Account, { id: ids[1] }, { balance: 150 });
        await delay(20);
      });
    });
    // It would be undone if the transaction were left open.
    await expect(database.transaction(() => Promise.reject(new Error('of others')))).rejects.toThrow();
    await nested;
    expect(await balancesOf(ids)).toEqual([50, 150]);
  });

  it('leave nothing open where a nested transaction begins during COMMIT', async () => {
    const ids = await newPair();
    const asAnother = AsyncLocalStorage.snapshot();
    let nested: Promise<unknown> | undefined;
    await database.transaction(async (manager) => {
      await fencedUpdate(manager, Account, { id: ids[0] }, { balance: 50 }, 5n);
      beforeStatement(manager.queryRunner!, 'COMMIT', () => {
        nested = asAnother(() =>
          manager.transaction((inner) => inner.update(Account, { id: ids[1] }, { balance: 150 })),
        );
        return Promise.resolve();
      });
    });
    const [ended] = await Promise.allSettled([nested]);
    // On the only connection it may be one of another request.
    const isShared = database.options.type === 'better-sqlite3';
    if (isShared) expect(ended.status).toBe('fulfilled');
    else expect(ended).toMatchObject({ reason: expect.any(LockConfigError) as unknown });
    await expect(database.transaction(() => Promise.reject(new Error('of others')))).rejects.toThrow();
    expect(await balancesOf(ids)).toEqual([50, isShared ? 150 : 100]);
  });
});

const delay = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms));

describe.each(sqlServers)('in a transaction on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Account, Booking], (opened) => (database = opened));

  it('a fenced update writes the rows that it locked, and none that begins to match later', async () => {
    const [locked, older, newer] = [
      await newAccount(database),
      await newAccount(database),
      await newAccount(database),
    ];
    for (const id of [older, newer]) await database.manager.update(Account, { id }, { balance: 0 });
    const written = await database.transaction('READ COMMITTED', async (manager) => {
      beforeStatement(manager.queryRunner!, 'UPDATE', async () => {
        await fencedUpdate(database, Account, { id: older }, { balance: 100 }, 5n);
        await fencedUpdate(database, Account, { id: newer }, { balance: 100 }, 7n);
      });
      const ids = In([locked, older, newer]);
      return fencedUpdate(manager, Account, { id: ids, balance: 100 }, { balance: 1 }, 6n);
    });
    expect(written).toBe(true);
    const balances = [locked, older, newer].map((id) => balanceOf(database, id));
    expect(await Promise.all(balances)).toEqual([1, 100, 100]);
  });

  it('a fenced update finds the rows that it locked, whatever their ids are made of', async () => {
    const table = database.getMetadata(Booking).tableName;
    const rooms = ['1', '2', '"1",2', ''];
    const values = rooms.map((room) => `('2026-01-01 00:00:00.000001', '${room}')`);
    await database.query(`INSERT INTO ${table} (begins, room) VALUES ${values.join(', ')}`);
    expect(await fencedUpdate(database, Booking, { guest: 'nobody' }, { guest: 'one' }, 5n)).toBe(true);
    expect(await database.manager.countBy(Booking, { guest: 'one' })).toBe(rooms.length);
  });

  it('a fenced update applies to what others have written since the first read', async () => {
    const id = await newAccount(database);
    const work = database.transaction(async (manager) => {
      await manager.findOneBy(Account, { id });
      await fencedUpdate(database, Account, { id }, { balance: 1 }, 7n);
      await fencedUpdate(manager, Account, { id }, { balance: 2 }, 6n);
    });
    await expect(work).rejects.toThrow('7 has written');
    expect(await balanceOf(database, id)).toBe(1);
  });
});

// MariaDB as `mysql` reports a missing default in a form that TypeORM treats as a change of any column.
describe('a fenced update by a condition on postgres', () => {
  let database: DataSource;
  tablesOn(postgresStore, [Account], (opened) => (database = opened));

  it('is not reported as done if a subscriber has caught the error that rolled it back', async () => {
    const id = await newAccount(database);
    const subscriber: EntitySubscriberInterface<Account> = {
      listenTo: () => Account,
      afterUpdate: ({ manager }) => manager.insert(Account, { id, balance: 0 }).catch(() => undefined),
    };
    database.subscribers.push(subscriber);
    const update = fencedUpdate(database, Account, { id: In([id]) }, { balance: 1 }, 5n);
    await expect(update).rejects.toThrow('the database has rolled it back');
    database.subscribers.splice(database.subscribers.indexOf(subscriber), 1);
    expect(await balanceOf(database, id)).toBe(100);
  });

  it('is not reported as done if a trigger leaves the row unwritten', async () => {
    const id = await newAccount(database);
    const { tableName } = database.getMetadata(Account);
    await database.query(
      `CREATE FUNCTION ${tableName}_veto() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
    );
    await database.query(
      `CREATE TRIGGER veto BEFORE UPDATE ON ${tableName} FOR EACH ROW EXECUTE FUNCTION ${tableName}_veto()`,
    );
    for (const where of [{ id }, { id: In([id]) }])
      expect(await fencedUpdate(database, Account, where, { balance: 1 }, 5n)).toBe(false);
    await database.query(`DROP FUNCTION ${tableName}_veto CASCADE`);
  });
});

describe.each(databases.filter(([name]) => name !== 'mysql'))('to synchronize on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Account], (opened) => (database = opened));

  it('once is enough for the column of the fencing token', async () => {
    const { upQueries } = await database.driver.createSchemaBuilder().log();
    expect(upQueries.map(({ query }) => query)).toEqual([]);
  });
});

type Connect = [name: string, optionsOf: () => Partial<DataSourceOptions>];

const changesOnly: Connect[] = [
  ['flags', () => ({ extra: { flags: ['-FOUND_ROWS'] } })],
  ['flags in lower case', () => ({ extra: { flags: '-found_rows' } })],
  ['a URI', () => ({ extra: { uri: `${serviceUrl('TEST_MARIADB_URL')}?flags=-FOUND_ROWS` } })],
];

describe.each(changesOnly)('if the client counts changed rows only, by %s,', (_, optionsOf) => {
  let database: DataSource;
  tablesOn(mariadbStore, [Account], (opened) => (database = opened), optionsOf());

  it('a fenced read or update that changes nothing finds the row', async () => {
    const id = await newAccount(database);
    for (const turn of [1, 2]) {
      expect([turn, await fencedUpdate(database, Account, { id }, { balance: 1 }, 5n)]).toEqual([turn, true]);
    }
    expect(await fencedFindOne(database, Account, { id }, 5n)).toMatchObject({ id, balance: 1 });
    expect(await fencedUpdate(database, Account, { id: -1 }, { balance: 1 }, 5n)).toBe(false);
  });
});

describe.each(['mariadb', 'mysql'] as const)('with sql_select_limit, on %s', (type) => {
  let database: DataSource;
  const more = { driver: inSession('SET SESSION sql_select_limit = 2') };
  tablesOn(
    () => mariadbStore(type),
    [Account],
    (opened) => (database = opened),
    more,
  );

  it('a fenced update of more rows writes all of them, or none', async () => {
    const ids: number[] = [];
    for (let row = 1; row <= 3; row += 1) ids.push(await newAccount(database));
    const balances = () => Promise.all(ids.map((id) => balanceOf(database, id)));
    const writeAll = (balance: number, token: bigint) =>
      fencedUpdate(database, Account, { id: In(ids) }, { balance }, token);
    expect(await writeAll(1, 5n)).toBe(true);
    expect(await balances()).toEqual([1, 1, 1]);
    await fencedUpdate(database, Account, { id: ids[2]! }, {}, 7n);
    await expect(writeAll(2, 6n)).rejects.toThrow(LockLostError);
    expect(await balances()).toEqual([1, 1, 1]);
  });
});
