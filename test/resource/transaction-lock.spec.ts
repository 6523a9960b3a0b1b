import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm';
import { transactionLock } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockTimeoutError } from '../../lib/core/errors.js';
import { mariadbStore, postgresStore, sqlServers } from '../support/stores.js';
import { beforeStatement } from './before-statement.js';
import { databases, inSession, tablesOn } from './databases.js';
import { openGate } from './gate.js';
import { lockTableOf } from './lock-table.js';
import { expectIdlePool, killConnectionOf, settingsOf } from './sessions.js';

@Entity()
class Invoice {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 60 })
  month!: string;

  @Column('int')
  number!: number;
}

const numbersOf = async (database: DataSource, month: string) =>
  (await database.manager.findBy(Invoice, { month })).map(({ number }) => number).sort((a, b) => a - b);

describe.each(databases)('a transaction lock on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Invoice], (opened) => (database = opened));
  const table = lockTableOf(() => database);

  /** Numbers without a gap: reads the last one, and writes the next. */
  const addInvoice = (month: string, waitMs = 60_000) =>
    database.transaction(async (manager) => {
      await transactionLock(manager, month, { waitMs, table });
      const number = (await manager.countBy(Invoice, { month })) + 1;
      await manager.insert(Invoice, { month, number });
    });

  it('twenty workers on three keys leave no gap and no number twice', async () => {
    const months = [randomUUID(), randomUUID(), randomUUID()];
    for (const month of months) await addInvoice(month);
    const adds = Array.from({ length: 20 }, (_, worker) => addInvoice(months[worker % 3]!));
    await Promise.all(adds);
    const counts = [8, 8, 7];
    for (const [index, month] of months.entries()) {
      const expected = Array.from({ length: counts[index]! }, (_, number) => number + 1);
      expect(await numbersOf(database, month)).toEqual(expected);
    }
    await expectIdlePool(database);
  });

  it('is refused outside of a transaction, and with wrong arguments', async () => {
    await expect(transactionLock(database.manager, 'k')).rejects.toThrow(
      'in a transaction, got one that is not',
    );
    await database.transaction(async (manager) => {
      const calls = [
        () => transactionLock(manager, ''),
        () => transactionLock(manager, 'k', { waitMs: -1 }),
        () => transactionLock(manager, 'k', { table: 'a b' }),
        () => transactionLock({} as DataSource, 'k'),
      ];
      for (const call of calls) await expect(call()).rejects.toThrow(LockConfigError);
    });
  });

  it('leaves the settings of the session as they were', async () => {
    await database.transaction(async (manager) => {
      const before = await settingsOf(manager);
      await transactionLock(manager, randomUUID(), { waitMs: 1_234, table });
      expect(await settingsOf(manager)).toEqual(before);
    });
  });
});

describe.each(sqlServers)('a transaction lock of several connections on %s', (name, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Invoice], (opened) => (database = opened));
  const table = lockTableOf(() => database);

  const lock = (key: string, waitMs: number, work: () => unknown = () => undefined) =>
    database.transaction(async (manager) => {
      await transactionLock(manager, key, { waitMs, table });
      await work();
    });

  it('is refused while another transaction has the key, and free after its end', async () => {
    const key = randomUUID();
    const gate = openGate();
    const holder = lock(key, 0, () => gate.pass());
    await gate.reached;
    for (const waitMs of [0, 20]) await expect(lock(key, waitMs)).rejects.toThrow(LockTimeoutError);
    await lock(randomUUID(), 0);
    const waiter = lock(key, Infinity);
    gate.open();
    await Promise.all([holder, waiter]);
    await lock(key, 0);
    await expectIdlePool(database);
  });

  it('is free after a rollback, and after the connection is killed', async () => {
    const key = randomUUID();
    await lock(key, 0);
    await expect(lock(key, 0, () => Promise.reject(new Error('of the work')))).rejects.toThrow('of the work');
    const killed = database.transaction(async (manager) => {
      await transactionLock(manager, key, { table });
      await killConnectionOf(database, manager);
    });
    await expect(killed).rejects.toThrow();
    await lock(key, 60_000);
    await expectIdlePool(database);
  });

  it('is not that of another table', async () => {
    if (name !== 'postgres') {
      const missing = database.transaction((manager) => transactionLock(manager, 'k', { table: 'no_such' }));
      await expect(missing).rejects.toThrow(LockConfigError);
      await expect(missing).rejects.toThrow('Run the migration');
      return;
    }
    const key = randomUUID();
    await lock(key, 0, () =>
      database.transaction((manager) => transactionLock(manager, key, { waitMs: 0, table: 'no_such' })),
    );
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'] as const)(
    'does not let a transaction with %s read what was committed before it waited',
    async (level) => {
      const call = database.transaction(level, (manager) => transactionLock(manager, 'k', { table }));
      if (name !== 'postgres') return call;
      await expect(call).rejects.toThrow(LockConfigError);
      await expect(call).rejects.toThrow(`got ${level}`);
    },
  );
});

describe('a transaction lock over connections whose type parsers return text', () => {
  let database: DataSource;
  const asText = { types: { getTypeParser: () => (value: string) => value } };
  tablesOn(postgresStore, [Invoice], (opened) => (database = opened), { extra: asText });

  it('is refused while another transaction has the key', async () => {
    const key = randomUUID();
    await database.transaction(async (manager) => {
      await transactionLock(manager, key, { waitMs: 0 });
      const other = database.transaction((inner) => transactionLock(inner, key, { waitMs: 0 }));
      await expect(other).rejects.toThrow(LockTimeoutError);
    });
    await database.transaction((manager) => transactionLock(manager, key, { waitMs: 0 }));
  });
});

describe('the first transaction lock of a process on mariadb', () => {
  let database: DataSource;
  tablesOn(mariadbStore, [Invoice], (opened) => (database = opened));
  const table = lockTableOf(() => database);

  // On MySQL 8, SHOW INDEX decides what the transaction sees. MariaDB does not show that.
  it('reads the index of the table only once it has the key', async () => {
    const steps: string[] = [];
    await database.transaction(async (manager) => {
      for (const word of ['\nINSERT', 'SHOW INDEX'])
        beforeStatement(manager.queryRunner!, word, async () => void steps.push(word));
      await transactionLock(manager, randomUUID(), { waitMs: 5_000, table });
    });
    expect(steps).toEqual(['\nINSERT', 'SHOW INDEX']);
  });
});

describe('a transaction lock of a session of mariadb for which an empty text is NULL', () => {
  let database: DataSource;
  const driver = inSession("SET SESSION sql_mode = 'STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL'");
  tablesOn(mariadbStore, [Invoice], (opened) => (database = opened), { driver });
  const table = lockTableOf(() => database);

  it('is taken', async () => {
    await database.transaction((manager) => transactionLock(manager, randomUUID(), { table }));
  });
});
