import { AsyncLocalStorage } from 'node:async_hooks';
import { describe } from 'vitest';
import type { EntityManager } from 'typeorm';
import { StorageDriver, initializeTransactionalContext } from 'typeorm-transactional';
import { byTypeormTransactional, describeFirstHelper } from './transactional.js';

initializeTransactionalContext({ storageDriver: StorageDriver.ASYNC_LOCAL_STORAGE });
describe('with typeorm-transactional', () => describeFirstHelper(byTypeormTransactional));

describe('with a getter of the application', () => {
  const managers = new AsyncLocalStorage<EntityManager>();
  describeFirstHelper((database) => {
    const own = database.manager;
    Object.defineProperty(database, 'manager', { get: () => managers.getStore() ?? own });
    return [(work) => own.transaction((manager) => managers.run(manager, work)), () => undefined];
  });
});
