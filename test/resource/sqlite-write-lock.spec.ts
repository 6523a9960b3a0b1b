import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { DataSource, Entity, type EntitySubscriberInterface, PrimaryColumn } from 'typeorm';
import { withRowLock } from '../../lib/backends/typeorm/index.js';
import { LockTimeoutError } from '../../lib/index.js';
import { type Store, betterSqlite3Store, dataSourceOptions, libsqlStore } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { Task } from './task.js';

const folder = tempFolder();
const newFile = () => join(folder, `${randomBytes(4).toString('hex')}.db`);

const stores: [string, (file: string) => Store][] = [
  ['better-sqlite3', betterSqlite3Store],
  ['libsql', libsqlStore],
];

const opened: DataSource[] = [];
afterEach(async () => {
  for (const database of opened.splice(0)) await database.destroy();
});

async function open(store: Store, options: object): Promise<DataSource> {
  const all = { ...dataSourceOptions(store), synchronize: true, ...options };
  const database = await new DataSource(all).initialize();
  opened.push(database);
  return database;
}

describe.each(stores)('a row lock of %s', (_, storeIn) => {
  it.each([true, false])(
    'that waits is not affected by what other callers of its process read meanwhile, with WAL: %s',
    async (enableWAL) => {
      const store = storeIn(newFile());
      const options = { entities: [Task], enableWAL, timeout: 0 };
      const [ours, theirs] = [await open(store, options), await open(store, options)];
      await theirs.manager.insert(Task, { id: 1, progress: 10 });
      await theirs.query('BEGIN IMMEDIATE');
      await theirs.query('UPDATE task SET progress = 9');
      const found = withRowLock(ours, Task, { id: 1 }, ({ progress }) => progress);
      await until(() => ours.createQueryRunner().isTransactionActive);
      expect(await ours.manager.find(Task)).toMatchObject([{ progress: 10 }]);
      // A COMMIT that fails because others read can be repeated.
      const commit = () => theirs.query('COMMIT');
      await until(() =>
        commit().then(
          () => true,
          () => false,
        ),
      );
      expect(await found).toBe(9);
    },
  );

  it('is that of the attached database that has the table', async () => {
    @Entity({ database: newFile() })
    class Seat {
      @PrimaryColumn('int')
      id!: number;
    }

    const entities = [Seat];
    const [ours, theirs] = [
      await open(storeIn(newFile()), { entities }),
      await open(storeIn(newFile()), { entities }),
    ];
    await ours.manager.insert(Seat, { id: 1 });
    const lock = <T>(database: DataSource, work: () => T | Promise<T>, waitMs?: number) =>
      withRowLock(database, Seat, { id: 1 }, work, { ...(waitMs !== undefined && { waitMs }) });
    await lock(ours, async () => {
      await expect(lock(theirs, () => 'has run', 0)).rejects.toThrow(LockTimeoutError);
    });
    expect(await lock(theirs, () => 'has run')).toBe('has run');
  });

  it('that waits keeps what a subscriber has written to an attached database', async () => {
    @Entity({ database: newFile() })
    class Audit {
      @PrimaryColumn('int')
      id!: number;
    }

    const store = storeIn(newFile());
    const options = { enableWAL: true, timeout: 0 };
    const theirs = await open(store, { ...options, entities: [Task] });
    const ours = await open(store, { ...options, entities: [Task, Audit] });
    await theirs.manager.insert(Task, { id: 1 });
    let audits = 0;
    const subscriber: EntitySubscriberInterface = {
      async afterTransactionStart({ manager }) {
        await manager.createQueryBuilder().insert().into(Audit).values({ id: 1 }).execute();
        audits += 1;
      },
    };
    ours.subscribers.push(subscriber);
    await theirs.query('BEGIN IMMEDIATE');
    const locked = withRowLock(ours, Task, { id: 1 }, () => 'has run');
    await until(() => audits === 1);
    await theirs.query('COMMIT');
    expect(await locked).toBe('has run');
    expect(await ours.manager.count(Audit)).toBe(1);
  });
});
