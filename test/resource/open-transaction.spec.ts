import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { Column, DataSource, Entity, type EntityManager, PrimaryColumn } from 'typeorm';
import {
  StorageDriver,
  addTransactionalDataSource,
  initializeTransactionalContext,
  runInTransaction,
} from 'typeorm-transactional';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  FencingToken,
  distributedLockMigration,
  fencedFindOne,
  fencedUpdate,
  transactionLock,
  withLockedTransaction,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockService, Locked, SingletonCron } from '../../lib/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Ticket {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  left!: number;

  @FencingToken()
  lockToken!: string | null;
}

@Injectable()
class Tickets {
  @Locked('ticket:{0}')
  async sell(id: number): Promise<number> {
    return Promise.resolve(id);
  }

  // No scheduler fires it. A call claims the nearest second.
  @SingletonCron('* * * * * *', { key: 'count' })
  async count(): Promise<string> {
    return Promise.resolve('counted');
  }
}

initializeTransactionalContext({ storageDriver: StorageDriver.ASYNC_LOCAL_STORAGE });

const isInProcess = (database: DataSource) => database.options.type === 'better-sqlite3';

describe.each(databases)('an open transaction around a lock on %s', (connectionName, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  let warnings: string[];
  const transactional = <T>(work: () => Promise<T>) => runInTransaction(work, { connectionName });
  tablesOn(storeOf, [Ticket], (opened) => {
    database = addTransactionalDataSource({ name: connectionName, dataSource: opened });
  });
  beforeEach(async () => {
    const warned: string[] = (warnings = []);
    const ignore = () => undefined;
    app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: randomUUID() })],
      providers: [{ provide: DataSource, useValue: database }, Tickets],
    })
      .setLogger({ log: ignore, error: ignore, warn: (text: string) => void warned.push(text) })
      .compile();
    await app.init();
    // Of a job without a scheduler.
    warned.splice(0);
    await database.manager.delete(Ticket, { id: 1 });
    await database.manager.insert(Ticket, { id: 1, left: 10 });
  });
  afterEach(() => app.close());

  const write = (database: DataSource | EntityManager) =>
    app.get(LockService).withLock('ticket:1', async (lock) => {
      await fencedFindOne(database, Ticket, { id: 1 }, lock);
      await fencedUpdate(database, Ticket, { id: 1 }, { left: 9 }, lock);
    });

  it('is warned of once if the data source knows the transaction of its caller', async () => {
    await transactional(() => app.get(Tickets).sell(1));
    expect(warnings).toEqual([
      expect.stringMatching(/"ticket:1" is released before the COMMIT.*@Locked\(\)/),
    ]);
    await transactional(() => app.get(LockService).withLock('other', () => undefined));
    expect(warnings).toHaveLength(1);
  });

  it('is warned of around a job, whose run would count as ended before COMMIT', async () => {
    expect(await transactional(() => app.get(Tickets).count())).toBe('counted');
    expect(warnings).toEqual([
      expect.stringMatching(/"count" is released before the COMMIT.*@SingletonCron\(\)/),
    ]);
  });

  it('is warned of when a fenced helper writes in it', async () => {
    await database.transaction((manager) => write(manager));
    const expected = isInProcess(database) ? [] : [expect.stringContaining('released before the COMMIT')];
    expect(warnings).toEqual(expected);
  });

  const table = `spec_${randomUUID().replaceAll('-', '_')}`;
  const locks = {
    row: (manager: EntityManager) => withRowLock(manager, Ticket, { id: 1 }, () => undefined),
    key: (manager: EntityManager) => transactionLock(manager, 'k', { table }),
  };
  it.each(['row', 'key'] as const)('is warned of when a %s is locked in it', async (kind) => {
    const runner = database.createQueryRunner();
    await new (distributedLockMigration({ table }))().up(runner);
    await runner.release();
    await database.transaction((manager) =>
      app.get(LockService).withLock('ticket:1', () => locks[kind](manager)),
    );
    await database.query(`DROP TABLE ${table}`);
    const expected = [expect.stringContaining('"ticket:1" is released before the COMMIT')];
    expect(warnings).toEqual(isInProcess(database) ? [] : expected);
  });

  it('is warned of when the lock is acquired in the work of a row lock', async () => {
    const sell = () => app.get(LockService).withLock('ticket:1', () => undefined);
    await sell();
    expect(warnings).toEqual([]);
    await withRowLock(database, Ticket, { id: 1 }, sell);
    expect(warnings).toEqual([expect.stringContaining('"ticket:1" is released before the COMMIT')]);
  });

  it.each(['acquire', 'tryAcquire'] as const)(
    'is warned of where a lock from %s is released in it',
    async (way) => {
      await transactional(async () => {
        await using lock = await app.get(LockService)[way]('ticket:1');
        expect(lock?.isValid()).toBe(true);
      });
      await transactional(async () => (await app.get(LockService)[way]('ticket:2'))?.release());
      expect(warnings).toEqual([expect.stringContaining('"ticket:1" is released before the COMMIT')]);
    },
  );

  it.each(['acquire', 'tryAcquire'] as const)(
    'is not warned of where a lock from %s is released after it',
    async (way) => {
      const lock = await transactional(() => app.get(LockService)[way]('ticket:1'));
      expect(await lock?.release()).toBe(true);
      expect(warnings).toEqual([]);
    },
  );

  it('is warned of when a fenced helper writes in it under a reentrant lock', async () => {
    const locks = app.get(LockService);
    await database.transaction((manager) =>
      locks.withLock('ticket:1', () =>
        locks.withLock('ticket:1', { reentrant: true }, (lock) =>
          fencedUpdate(manager, Ticket, { id: 1 }, { left: 9 }, lock),
        ),
      ),
    );
    const expected = isInProcess(database) ? [] : [expect.stringContaining('released before the COMMIT')];
    expect(warnings).toEqual(expected);
  });

  it('is not warned of if it is committed before the release', async () => {
    await app.get(Tickets).sell(1);
    await write(database);
    await withLockedTransaction(database, 'ticket:1', async (manager, lock) => {
      await fencedUpdate(manager, Ticket, { id: 1 }, { left: 8 }, lock);
    });
    await app
      .get(LockService)
      .withLock('ticket:1', (lock) =>
        transactional(() => fencedUpdate(database, Ticket, { id: 1 }, { left: 7 }, lock)),
      );
    expect(warnings).toEqual([]);
  });
});
