import { DataSource } from 'typeorm';
import { distributedLockEntity } from '../../lib/backends/typeorm/index.js';
import type { LawBench } from '../../lib/testing/laws/law.js';
import { type Store, backendOn, dataSourceOptions } from '../support/stores.js';

/** The laws' bench on a database; it forgets a key by deleting its row, as nobody should. */
export const sqlBench = (storeOf: () => Store): LawBench => ({
  open: () => backendOn(storeOf()),
  async forget(key) {
    const options = dataSourceOptions(storeOf());
    const entity = distributedLockEntity({ type: options.type as 'postgres' });
    const database = await new DataSource({ ...options, entities: [entity] }).initialize();
    await database.getRepository(entity).delete({ key });
    await database.destroy();
  },
});
