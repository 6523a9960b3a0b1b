import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import type { DataSource, EntityManager } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { fencedUpdate, withLockedTransaction, withRowLock } from '../../lib/backends/typeorm/index.js';
import { type LockEventMessage, DistributedLockModule, LockService } from '../../lib/index.js';
import { sqlServers } from '../support/stores.js';
import { tablesOn } from './databases.js';
import { openGate } from './gate.js';
import { killConnectionOf } from './sessions.js';
import { Task } from './task.js';

const OPEN = 'nestjs-distributed-lock:transaction-open';

/** TypeORM treats a transaction as active until its ROLLBACK has succeeded. */
describe.each(sqlServers)('a transaction on %s whose connection is lost', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  let key: string;
  const warned: string[] = [];
  const onWarning = (message: unknown) =>
    void warned.push((message as LockEventMessage<'transaction-open'>).key);
  tablesOn(storeOf, [Task], (opened) => (database = opened));
  beforeAll(async () => {
    const imports = [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: 'spec' })];
    app = await Test.createTestingModule({ imports }).compile();
    await app.init();
    subscribe(OPEN, onWarning);
  });
  beforeEach(async () => {
    key = randomUUID();
    await database.manager.insert(Task, { id: 1 });
  });
  afterEach(() => database.manager.clear(Task));
  afterAll(async () => {
    unsubscribe(OPEN, onWarning);
    await app.close();
  });

  const locks = () => app.get(LockService);

  async function lose(manager: EntityManager): Promise<void> {
    await killConnectionOf(database, manager);
    await manager.query('SELECT 1');
  }

  type Run = (work: (manager: EntityManager) => Promise<void>) => Promise<unknown>;
  const kinds: [string, Run][] = [
    [
      'withLockedTransaction',
      (work) => withLockedTransaction(database, randomUUID(), { locks: locks() }, work),
    ],
    ['withRowLock', (work) => withRowLock(database, Task, { id: 1 }, (_row, manager) => work(manager))],
  ];

  it.each(kinds)('has ended for what its work has started: %s', async (_name, run) => {
    const gate = openGate();
    let later: Promise<unknown> | undefined;
    const lost = run((manager) => {
      later = gate
        .pass()
        .then(() => locks().withLock(key, (lock) => fencedUpdate(database, Task, { id: 1 }, {}, lock)));
      return lose(manager);
    });
    await expect(lost).rejects.toThrow();
    gate.open();
    expect(await later).toBe(true);
    expect(warned).not.toContain(key);
  });

  it('is not open when the lock of its rows is released', async () => {
    await locks().withLock(key, async (lock) => {
      const lost = withRowLock(database, Task, { id: 1 }, async (_row, manager) => {
        await fencedUpdate(manager, Task, { id: 1 }, {}, lock);
        await lose(manager);
      });
      await expect(lost).rejects.toThrow();
    });
    expect(warned).not.toContain(key);
  });
});
