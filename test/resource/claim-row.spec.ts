import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  Column,
  DataSource,
  type DataSourceOptions,
  DeleteDateColumn,
  Entity,
  In,
  Index,
  IsNull,
  ManyToOne,
  Not,
  PrimaryColumn,
  QueryFailedError,
  Raw,
} from 'typeorm';
import { claimRow } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockTimeoutError } from '../../lib/core/errors.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { betterSqlite3Store, libsqlStore, postgresStore, sqlServers } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { beforeStatement } from './before-statement.js';
import { databases, strictDatabases, tablesOn } from './databases.js';
import { waitersFor } from './sessions.js';

const folder = tempFolder();
const sqliteStore = () => betterSqlite3Store(join(folder, 'claims.db'));

const STATES = ['WAITING', 'RUNNING', 'DONE'];

@Entity()
@Index(['batch', 'state'])
@Index(['state'])
class Task {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 40 })
  batch!: string;

  @Column({
    type: 'int',
    transformer: { to: (state: string) => STATES.indexOf(state), from: (stored: number) => STATES[stored] },
  })
  state!: string;

  @Column({ type: 'varchar', length: 40, nullable: true })
  worker!: string | null;
}

@Entity()
class Letter {
  @PrimaryColumn('int')
  id!: number;

  @Column({ type: 'varchar', length: 10, default: 'WAITING' })
  state!: string;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

@Entity()
class Step {
  @PrimaryColumn('int')
  id!: number;

  @ManyToOne(() => Task, { createForeignKeyConstraints: false })
  task!: Task;

  @Column({ type: 'varchar', length: 40 })
  state!: string;
}

let nextId = 1;
async function newTasks({ manager }: DataSource, count: number): Promise<{ batch: string; ids: number[] }> {
  const batch = randomUUID();
  const ids = Array.from({ length: count }, () => (nextId += 1));
  await manager.insert(
    Task,
    ids.map((id) => ({ id, batch, state: 'WAITING' })),
  );
  return { batch, ids };
}

const claim = (database: DataSource | DataSource['manager'], batch: string, worker = 'somebody') =>
  claimRow(database, Task, { from: { batch, state: 'WAITING' }, to: { state: 'RUNNING', worker } });

const idsOf = (tasks: readonly (Task | null)[]) =>
  tasks.flatMap((task) => (task ? [task.id] : [])).sort((one, other) => one - other);

describe.each([...databases, ...strictDatabases])('a claim on %s', (_, storeOf, more = {}) => {
  let database: DataSource;
  tablesOn(storeOf, [Task], (opened) => (database = opened), more);

  it('gives each of three tasks to one of twenty workers', async () => {
    const { batch, ids } = await newTasks(database, 3);
    const workers = Array.from({ length: 20 }, (_, index) => claim(database, batch, `worker ${index}`));
    const claimed = await Promise.all(workers);
    expect(idsOf(claimed)).toEqual(ids);
    for (const [index, task] of claimed.entries()) {
      if (!task) continue;
      expect(task).toMatchObject({ state: 'RUNNING', worker: `worker ${index}` });
      expect(await database.manager.findOneBy(Task, { id: task.id })).toEqual(task);
    }
  });

  it('leaves no task when workers continue until none is left', async () => {
    const { batch, ids } = await newTasks(database, 30);
    const worker = async () => {
      const mine = [];
      for (let task = await claim(database, batch); task; task = await claim(database, batch))
        mine.push(task);
      return mine;
    };
    expect(idsOf((await Promise.all([worker(), worker(), worker(), worker(), worker()])).flat())).toEqual(
      ids,
    );
  });

  it('moves a row from state to state once', async () => {
    const { batch, ids } = await newTasks(database, 2);
    const [id] = ids;
    await claim(database, batch);
    await claim(database, batch);
    const finish = () =>
      claimRow(database, Task, { from: { id: id!, state: 'RUNNING' }, to: { state: 'DONE' } });
    const moved = await Promise.all(Array.from({ length: 20 }, finish));
    expect(idsOf(moved)).toEqual([id]);
    expect(await database.manager.countBy(Task, { batch, state: 'DONE' })).toBe(1);
  });

  it('claims rows in the requested order', async () => {
    const { batch, ids } = await newTasks(database, 5);
    const from = { batch, state: In(['WAITING', 'DONE']), worker: IsNull() };
    for (const id of ids.toReversed()) {
      const task = await claimRow(database, Task, {
        from,
        to: { state: 'RUNNING', worker: 'me' },
        order: { id: 'DESC' },
      });
      expect(task?.id).toBe(id);
    }
    expect(await claimRow(database, Task, { from, to: { worker: 'me' } })).toBeNull();
  });

  it('is undone with its transaction', async () => {
    const { batch, ids } = await newTasks(database, 1);
    const work = database.transaction(async (manager) => {
      expect(await claim(manager, batch)).toMatchObject({ id: ids[0] });
      throw new Error('of the caller');
    });
    await expect(work).rejects.toThrow('of the caller');
    expect(await claim(database, batch)).toMatchObject({ id: ids[0] });
  });

  it('is of one row, also if its only condition is a Raw() with OR', async () => {
    await newTasks(database, 3);
    const worker = randomUUID();
    const isFree = Raw((column) => `${column} IS NULL OR ${column} = 'nobody'`);
    const claimed = await claimRow(database, Task, { from: { worker: isFree }, to: { worker } });
    const mine = await database.manager.findBy(Task, { worker });
    expect(mine.map(({ id }) => id)).toEqual([claimed!.id]);
  });

  it('fails after other workers were faster again and again', async () => {
    const { batch } = await newTasks(database, 1);
    const onlySeen = Raw((column) => (column.includes('.') ? '1 = 1' : '1 = 0'));
    const attempt = claimRow(database, Task, { from: { batch, worker: onlySeen }, to: { worker: 'me' } });
    await expect(attempt).rejects.toThrow(LockTimeoutError);
  });

  it('is not attempted if the row could be claimed again', async () => {
    const attempts = [
      () => claimRow(database, Task, { from: { state: 'WAITING' }, to: { worker: 'me' } }),
      () => claimRow(database, Task, { from: { state: 'WAITING' }, to: { state: 'WAITING' } }),
      () => claimRow(database, Task, { from: {}, to: { state: 'RUNNING' } }),
      () =>
        claimRow(database, Task, {
          from: { id: undefined as unknown as number, state: 'WAITING' },
          to: { state: 'DONE' },
        }),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
  });

  it.each([
    [{}, 'got { from: undefined, to: undefined }'],
    [{ from: { state: 'WAITING' } }, "expected 'from' to say which rows may be claimed"],
    [{ from: { state: 'WAITING' }, to: { state: 'DONE' }, order: 'id' }, "an object such as { id: 'ASC' }"],
  ])('says what is missing: %j', async (claim, reason) => {
    await expect(claimRow(database, Task, claim as never)).rejects.toThrow(reason);
  });
});

describe.each(databases)('where rows are deleted softly on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Letter], (opened) => (database = opened));

  it('a claim takes no row that is deleted after it was found', async () => {
    await database.manager.insert(Letter, { id: 1 });
    const runner = database.createQueryRunner();
    beforeStatement(runner, 'UPDATE', () => database.manager.softDelete(Letter, { id: 1 }));
    const from = { state: 'WAITING' };
    expect(await claimRow(runner.manager, Letter, { from, to: { state: 'SENT' } })).toBeNull();
    await runner.release();
    const letter = await database.manager.findOne(Letter, { where: { id: 1 }, withDeleted: true });
    expect(letter).toMatchObject({ state: 'WAITING', deletedAt: expect.any(Date) as unknown });
  });

  it('a claim may delete the row that it takes', async () => {
    await database.manager.insert(Letter, { id: 2 });
    const claim = { from: { id: 2, state: 'WAITING' }, to: { state: 'SENT', deletedAt: new Date() } };
    expect(await claimRow(database, Letter, claim)).toMatchObject({ id: 2, state: 'SENT' });
    expect(await claimRow(database, Letter, claim)).toBeNull();
  });
});

/** Opens another data source for the same tables, for the tests of this block. */
function anotherTo(first: () => DataSource, use: (other: DataSource) => void): void {
  let other: DataSource;
  beforeAll(async () => {
    other = await new DataSource({ ...first().options, synchronize: false }).initialize();
    use(other);
  });
  afterAll(() => other.destroy());
}

describe('if another process locks the file of SQLite right after a claim', () => {
  let database: DataSource;
  let other: DataSource;
  tablesOn(sqliteStore, [Task], (opened) => (database = opened), { timeout: 1 });
  anotherTo(
    () => database,
    (opened) => (other = opened),
  );

  it('the claim waits until the row can be read', async () => {
    const { batch, ids } = await newTasks(database, 1);
    const runner = database.createQueryRunner();
    let reads = 0;
    const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
    runner.query = async (...args: unknown[]): Promise<never> => {
      // The first read finds the candidate.
      if (String(args[0]).startsWith('SELECT')) {
        reads += 1;
        if (reads === 2) await other.query('BEGIN EXCLUSIVE');
        if (reads === 4) await other.query('COMMIT');
      }
      return (await query(...args)) as never;
    };
    expect(await claim(database, batch)).toMatchObject({ id: ids[0], state: 'RUNNING' });
    expect(reads).toBe(4);
  });
});

describe('after libsql has found the file busy', () => {
  let database: DataSource;
  let other: DataSource;
  // With a rollback journal, the connection also keeps others from the file.
  const options = { timeout: 1, enableWAL: true };
  const storeOf = () => libsqlStore(join(folder, 'libsql-claims.db'));
  tablesOn(storeOf, [Task], (opened) => (database = opened), options);
  anotherTo(
    () => database,
    (opened) => (other = opened),
  );

  it('a claim that is not committed is rejected, and the row is free', async () => {
    const { batch, ids } = await newTasks(database, 1);
    const save = () => database.manager.update(Task, { id: 0 }, { worker: 'nobody' });
    await other.query('BEGIN IMMEDIATE');
    await expect(save()).rejects.toThrow('database is locked');
    await other.query('COMMIT');
    await expect(claim(database, batch)).rejects.toThrow(LockConfigError);
    expect(await claim(other, batch, 'other')).toMatchObject({ id: ids[0], worker: 'other' });
    await save();
    const done = { from: { batch, state: 'RUNNING' }, to: { state: 'DONE' } };
    expect(await claimRow(database, Task, done)).toMatchObject({ id: ids[0], worker: 'other' });
  });
});

// PostgreSQL alone: what is under test is a condition that no statement is made of.
describe('where a row refers to another', () => {
  let database: DataSource;
  tablesOn(postgresStore, [Task, Step], (opened) => (database = opened));

  it('a claim is by the id of the other row, not by its other fields', async () => {
    const { batch, ids } = await newTasks(database, 1);
    await database.manager.insert(Step, { id: ids[0]!, task: { id: ids[0]! }, state: 'WAITING' });
    const claimBy = (task: { id: number } | { batch: string }) =>
      claimRow(database, Step, { from: { task, state: 'WAITING' }, to: { state: 'DONE' } });
    await expect(claimBy({ batch })).rejects.toThrow(LockConfigError);
    await expect(claimBy({ batch })).rejects.toThrow('columns of Step, got task.batch');
    expect(await claimBy({ id: ids[0]! })).toMatchObject({ id: ids[0], state: 'DONE' });
  });
});

describe.each(sqlServers)('in a transaction on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Task], (opened) => (database = opened));

  it('a claim finds what others have left since the first read', async () => {
    const { batch, ids } = await newTasks(database, 30);
    const last = await database.transaction(async (manager) => {
      await manager.findBy(Task, { batch });
      const theirs = { batch, state: 'WAITING', id: Not(ids[29]!) };
      await database.manager.update(Task, theirs, { state: 'DONE' });
      const mine = await claim(manager, batch);
      expect(await claim(manager, batch)).toBeNull();
      return mine;
    });
    expect(last).toMatchObject({ id: ids[29], state: 'RUNNING' });
  });
});

describe.each(sqlServers)('over a connection to %s that is cut', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Task], (opened) => (database = opened));

  it('a claim may take effect later, and is found by a value that only it has written', async () => {
    const { batch, ids } = await newTasks(database, 1);
    const url = new URL((database.options as { url: string }).url);
    const proxy = await FaultProxy.to(Number(url.port));
    url.port = String(proxy.port);
    const options = { ...database.options, url: url.href, synchronize: false } as DataSourceOptions;
    const cut = await new DataSource(options).initialize();
    const worker = randomUUID();
    const found = () => database.manager.findOneBy(Task, { batch, state: 'RUNNING', worker });
    try {
      await database.transaction(async (manager) => {
        await manager.update(Task, { id: ids[0]! }, { batch });
        const failure = expect(claim(cut, batch, worker)).rejects.toThrow(QueryFailedError);
        const { tableName } = database.getMetadata(Task);
        await until(async () => (await waitersFor(database, tableName)).length === 1);
        proxy.resetAll();
        await failure;
        expect(await found()).toBeNull();
      });
      await until(async () => (await found()) !== null);
      expect(await claim(database, batch)).toBeNull();
    } finally {
      await cut.destroy();
      await proxy.close();
    }
  });
});
