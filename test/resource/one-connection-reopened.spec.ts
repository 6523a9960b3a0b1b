import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { Column, type DataSource, Entity, PrimaryColumn } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { claimRow, withLockedTransaction } from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockConfigError, LockService } from '../../lib/index.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Row {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  count!: number;
}

const onOneConnection = databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql');

describe.each(onOneConnection)('the only connection of %s, closed and opened again,', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Row], (opened) => (database = opened));
  beforeAll(async () => {
    const imports = [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: 'spec' })];
    app = await Test.createTestingModule({ imports }).compile();
    await app.init();
  });
  afterAll(() => app.close());

  const locked = (id: number) =>
    withLockedTransaction(database, 'any', { locks: app.get(LockService) }, (manager) =>
      manager.update(Row, { id }, { count: 9 }),
    );
  const claim = (id: number) => claimRow(database, Row, { from: { id, count: 10 }, to: { count: 9 } });

  it.each([
    [1, 'a locked transaction', locked],
    [2, 'a helper', claim],
  ])('%i. is not used by %s that waited for it before', async (id, _waiter, use) => {
    await database.manager.insert(Row, { id, count: 10 });
    await locked(0);
    const open = database.createQueryRunner();
    await open.startTransaction();
    const waiting = use(id);
    await nextTurn();
    const refused = expect(waiting).rejects.toThrow(LockConfigError);
    await database.destroy();
    await database.initialize();
    await open.rollbackTransaction().catch(() => undefined);
    await refused;
    await expect(waiting).rejects.toThrow('but it was closed');
    expect(await database.manager.findOneBy(Row, { id })).toMatchObject({ count: 10 });
  });
});
