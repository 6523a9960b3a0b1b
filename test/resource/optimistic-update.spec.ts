import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  In,
  PrimaryColumn,
  VersionColumn,
} from 'typeorm';
import { optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockTimeoutError } from '../../lib/core/errors.js';
import { betterSqlite3Store, sqlServers } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { databases, strictDatabases, tablesOn } from './databases.js';

@Entity()
class Counter {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  count!: number;

  @Column({ type: 'varchar', length: 40 })
  label!: string;

  @Column('simple-json')
  history!: number[];

  @VersionColumn()
  version!: number;
}

@Entity()
class Unversioned {
  @PrimaryColumn('int')
  id!: number;
}

const folder = tempFolder();

let nextId = 1;
const newCounter = async ({ manager }: DataSource): Promise<number> => {
  nextId += 1;
  await manager.insert(Counter, { id: nextId, count: 0, label: 'new', history: [] });
  return nextId;
};

const read = ({ manager }: DataSource, id: number) => manager.findOneByOrFail(Counter, { id });

const increment = (counter: Counter) => {
  counter.count += 1;
};

describe.each([...databases, ...strictDatabases])('on %s', (_, storeOf, more = {}) => {
  let database: DataSource;
  tablesOn(storeOf, [Counter, Unversioned], (opened) => (database = opened), more);

  it('save() overwrites a change that was made since the row was read', async () => {
    const id = await newCounter(database);
    const [one, other] = [await read(database, id), await read(database, id)];
    for (const counter of [one, other]) {
      increment(counter);
      await database.manager.save(counter);
    }
    expect((await read(database, id)).count).toBe(1);
  });

  it('an optimistic update loses none of twenty at once', async () => {
    const id = await newCounter(database);
    const updates = Array.from({ length: 20 }, () =>
      optimisticUpdate(database, Counter, { id }, increment, { attempts: 100 }),
    );
    const written = await Promise.all(updates);
    expect(written.map((counter) => counter?.count).sort((a, b) => a! - b!)).toEqual(
      Array.from({ length: 20 }, (_, index) => index + 1),
    );
    for (const counter of written) expect(counter!.version).toBe(counter!.count + 1);
    expect(await read(database, id)).toMatchObject({ count: 20, version: 21 });
  });

  it('it refuses a changed copy of the row, which would not be written', async () => {
    const id = await newCounter(database);
    const copies = [
      (counter: Counter) => Object.assign({}, counter, { count: 7 }),
      (counter: Counter) => ({ count: counter.count + 7 }),
      (counter: Counter) => {
        counter.label = 'changed';
        return Object.assign(new Counter(), counter, { count: 7 });
      },
    ];
    for (const copy of copies) {
      const update = optimisticUpdate(database, Counter, { id }, copy);
      await expect(update).rejects.toThrow(LockConfigError);
      await expect(update).rejects.toThrow('with another count, which would not be written');
    }
    expect(await read(database, id)).toMatchObject({ count: 0, label: 'new', version: 1 });
    await optimisticUpdate(database, Counter, { id }, (counter) => (counter.history = [7]));
    await optimisticUpdate(database, Counter, { id }, (counter) => Object.assign(counter, { count: 8 }));
    expect(await read(database, id)).toMatchObject({ count: 8, history: [7] });
  });

  it('it writes only what was changed', async () => {
    const id = await newCounter(database);
    await optimisticUpdate(database, Counter, { id }, async (counter) => {
      const query = database.createQueryBuilder().update(Counter).set({ label: 'of another', version: 1 });
      await query.where({ id }).execute();
      counter.history.push(7);
    });
    expect(await read(database, id)).toMatchObject({
      count: 0,
      label: 'of another',
      history: [7],
      version: 2,
    });
  });

  it('it writes nothing if nothing was changed, or if the change failed', async () => {
    const id = await newCounter(database);
    expect(await optimisticUpdate(database, Counter, { id }, () => undefined)).toMatchObject({ count: 0 });
    const failure = optimisticUpdate(database, Counter, { id }, (counter) => {
      increment(counter);
      throw new Error('of the caller');
    });
    await expect(failure).rejects.toThrow('of the caller');
    expect(await read(database, id)).toMatchObject({ count: 0, version: 1 });
  });

  it('it fails after the given number of attempts', async () => {
    const id = await newCounter(database);
    let calls = 0;
    const update = optimisticUpdate(
      database,
      Counter,
      { id },
      async (counter) => {
        calls += 1;
        counter.label = 'ours';
        await database.manager.increment(Counter, { id }, 'count', 1);
      },
      { attempts: 3 },
    );
    await expect(update).rejects.toThrow(LockTimeoutError);
    await expect(update).rejects.toThrow(/Counter .*within 3 attempts/);
    expect(calls).toBe(3);
    expect(await read(database, id)).toMatchObject({ count: 3, label: 'new' });
  });

  it('it returns null if there is no row, or it was deleted meanwhile', async () => {
    expect(await optimisticUpdate(database, Counter, { id: -1 }, increment)).toBeNull();
    const id = await newCounter(database);
    const update = optimisticUpdate(database, Counter, { id }, async (counter) => {
      increment(counter);
      await database.manager.delete(Counter, { id });
    });
    expect(await update).toBeNull();
  });

  it('it changes no row if several match', async () => {
    const ids = [await newCounter(database), await newCounter(database)];
    const update = optimisticUpdate(database, Counter, { id: In(ids) }, increment);
    await expect(update).rejects.toThrow(LockConfigError);
    await expect(update).rejects.toThrow(/one row of Counter meets, .* which several do/);
    for (const id of ids) expect(await read(database, id)).toMatchObject({ count: 0, version: 1 });
  });

  /** Calls it in a transaction that then fails. What this returns lets its function end. */
  async function callInFailed(source: DataSource | EntityManager, id: number) {
    let isCalled = false;
    let goOn = (): void => undefined;
    const mayGoOn = new Promise<void>((resolve) => (goOn = resolve));
    let update: Promise<unknown> | undefined;
    const work = source.transaction(async (manager) => {
      update = optimisticUpdate(manager, Counter, { id }, async (counter) => {
        isCalled = true;
        await mayGoOn;
        increment(counter);
      });
      update.catch(() => undefined);
      await until(() => isCalled);
      throw new Error('of the caller');
    });
    await expect(work).rejects.toThrow('of the caller');
    return () => {
      goOn();
      return update;
    };
  }

  it('it writes nothing after the end of its transaction', async () => {
    const id = await newCounter(database);
    const goOn = await callInFailed(database, id);
    await expect(goOn()).rejects.toThrow(LockConfigError);
    expect(await read(database, id)).toMatchObject({ count: 0, version: 1 });
  });

  it('it writes nothing after the savepoint that it was called in is rolled back', async () => {
    const id = await newCounter(database);
    await database.transaction(async (manager) => {
      const goOn = await callInFailed(manager, id);
      await expect(goOn()).rejects.toThrow(LockConfigError);
    });
    expect(await read(database, id)).toMatchObject({ count: 0, version: 1 });
  });

  it('it is undone with its savepoint, and loses nothing when it is called again', async () => {
    const id = await newCounter(database);
    await database.transaction(async (manager) => {
      let undone: Counter | null = null;
      const inner = manager.transaction(async (nested) => {
        undone = await optimisticUpdate(nested, Counter, { id }, increment);
        throw new Error('of the caller');
      });
      await expect(inner).rejects.toThrow('of the caller');
      expect(undone).toMatchObject({ count: 1, version: 2 });
      const again = await optimisticUpdate(manager, Counter, { id }, (counter) => (counter.count += 2));
      expect(again).toMatchObject({ count: 2, version: 2 });
    });
    expect(await read(database, id)).toMatchObject({ count: 2, version: 2 });
  });

  it('it continues after a savepoint that began and ended while its function ran', async () => {
    const id = await newCounter(database);
    await database.transaction((manager) =>
      optimisticUpdate(manager, Counter, { id }, async (counter) => {
        const inner = manager.transaction(() => Promise.reject(new Error('of the caller')));
        await expect(inner).rejects.toThrow('of the caller');
        increment(counter);
      }),
    );
    expect(await read(database, id)).toMatchObject({ count: 1, version: 2 });
  });

  it('it is not attempted if an argument is missing', async () => {
    const id = undefined as unknown as number;
    const attempts = [
      () => optimisticUpdate(database, Unversioned, { id: 1 }, () => undefined),
      () => optimisticUpdate(database, Counter, { id }, increment),
      () => optimisticUpdate(database, Counter, { id: 1 }, increment, { attempts: 0 }),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
  });
});

describe.each(sqlServers)('in a transaction with REPEATABLE READ on %s', (name, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Counter], (opened) => (database = opened));

  it('no change of others is lost', async () => {
    const id = await newCounter(database);
    const work = database.transaction('REPEATABLE READ', async (manager) => {
      await manager.findOneBy(Counter, { id });
      await optimisticUpdate(database, Counter, { id }, increment);
      return optimisticUpdate(manager, Counter, { id }, increment);
    });
    if (name === 'postgres') {
      await expect(work).rejects.toMatchObject({ driverError: { code: '40001' } });
      expect(await read(database, id)).toMatchObject({ count: 1 });
    } else {
      expect(await work).toMatchObject({ count: 2 });
      expect(await read(database, id)).toMatchObject({ count: 2, version: 3 });
    }
  });
});

describe('with safe integers of better-sqlite3', () => {
  let database: DataSource;
  const prepareDatabase = (driver: { defaultSafeIntegers(): unknown }) => void driver.defaultSafeIntegers();
  const storeOf = () => betterSqlite3Store(join(folder, 'safe-integers.db'));
  tablesOn(storeOf, [Counter], (opened) => (database = opened), { prepareDatabase });

  it('the version stays a bigint', async () => {
    const id = await newCounter(database);
    const written = await optimisticUpdate(database, Counter, { id }, (counter) => {
      counter.label = 'written';
    });
    expect(written?.version).toBe(2n);
    expect((await read(database, id)).version).toBe(2n);
  });
});
