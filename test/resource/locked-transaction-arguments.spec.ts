import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
  withLockedTransaction,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockConfigError, LockService } from '../../lib/index.js';
import { dataSourceOptions, libsqlStore } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';

@Entity()
class Account {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  balance!: number;

  @FencingToken()
  fencingToken?: bigint;
}

const database = new DataSource({
  ...dataSourceOptions(libsqlStore(join(tempFolder(), 'arguments.db'))),
  entities: [Account],
  synchronize: true,
});
let app: TestingModule;
beforeAll(async () => {
  await database.initialize();
  app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: memoryBackend() })],
    providers: [{ provide: DataSource, useValue: database }],
  }).compile();
  await app.init();
});
afterAll(async () => {
  await app.close();
  await database.destroy();
});

describe('withLockedTransaction', () => {
  it.each([
    ['a manager', () => database.manager, /expects a DataSource, got EntityManager/],
    ['a repository', () => database.getRepository(Account), /expects a DataSource, got Repository/],
    ['a lock service', () => app.get(LockService), /expects a DataSource, got LockService/],
    ['nothing', () => undefined, /expects a DataSource, got undefined/],
  ])('refuses %s in place of the data source, and says what it expects', async (_, first, message) => {
    const refused = withLockedTransaction(first() as unknown as DataSource, 'key', () => undefined);
    await expect(refused).rejects.toThrow(LockConfigError);
    await expect(refused).rejects.toThrow(message);
  });

  it('refuses a number in place of the options', async () => {
    const lease = 5_000 as unknown as object;
    await expect(withLockedTransaction(database, 'key', lease, () => undefined)).rejects.toThrow(
      'got 5000; write { leaseMs: 5000 }',
    );
  });

  it('refuses something else in place of a lock service', async () => {
    const locks = 'x' as unknown as LockService;
    await expect(withLockedTransaction(database, 'key', { locks }, () => undefined)).rejects.toThrow(
      "Expected options.locks to be a LockService, got 'x'.",
    );
  });

  it('locks several keys, and writes each row with the token of its own key', async () => {
    const accounts = database.getRepository(Account);
    await accounts.save([
      { id: 1, balance: 10 },
      { id: 2, balance: 0 },
    ]);
    await withLockedTransaction(database, ['account:2', 'account:1'], async (manager, lock) => {
      for (const [id, change] of [
        [1, -10],
        [2, 10],
      ] as const) {
        const token = lock.fencingTokenOf(`account:${id}`);
        const account = await fencedFindOne(manager, Account, { id }, token);
        await fencedUpdate(manager, Account, { id }, { balance: account!.balance + change }, token);
      }
      expect(await app.get(LockService).inspect('account:1')).not.toBeNull();
    });
    expect(await accounts.find({ order: { id: 'ASC' } })).toMatchObject([{ balance: 0 }, { balance: 10 }]);
    expect(await app.get(LockService).inspect('account:1')).toBeNull();
  });
});

describe('helpers for rows', () => {
  const accounts = () => database.getRepository(Account);
  const id = { id: 1 } as never;

  it.each<[string, () => Promise<unknown>]>([
    ['fencedFindOne', () => fencedFindOne(accounts(), id, 1n as never, undefined as never)],
    ['fencedUpdate', () => fencedUpdate(accounts(), id, {}, 1n as never, undefined as never)],
    ['claimRow', () => claimRow(accounts(), id, undefined as never)],
    ['optimisticUpdate', () => optimisticUpdate(accounts(), id, {}, () => undefined)],
    ['withRowLock', () => withRowLock(accounts(), id, {}, () => undefined)],
    ['fencedFindOne with a repository', () => fencedFindOne(database, accounts() as never, id, 1n)],
    ['claimRow with nothing', () => claimRow(database, undefined as never, undefined as never)],
  ])('%s without an entity says where to pass it', async (_, call) => {
    await expect(call()).rejects.toThrow(LockConfigError);
    await expect(call()).rejects.toThrow(
      /Expected an entity of the data source, got .* Pass the class after/,
    );
  });

  it('say that the data source must be initialized', async () => {
    const closed = new DataSource({ ...database.options });
    await expect(withRowLock(closed, Account, { id: 1 }, () => undefined)).rejects.toThrow(
      'Expected an initialized data source: call its initialize() first.',
    );
  });

  it('withRowLock says the order of its arguments', async () => {
    const options = { waitMs: 5 } as never;
    await expect(withRowLock(database, Account, { id: 1 }, options)).rejects.toThrow(
      'call withRowLock(dataSource, entity, where, work, options)',
    );
    const work = () => undefined;
    await expect(withRowLock(database, Account, { id: 1 }, options, work as never)).rejects.toThrow(
      'call withRowLock(dataSource, entity, where, work, options)',
    );
  });
});
