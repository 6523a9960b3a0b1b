import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureBetterSqlite3 } from '../../../services/better-sqlite3.js';
import type { Store } from '../../../support/stores.js';
import { type RunQuery, queryOn, sqlStoreOperations, stallWith } from './sql-operations.js';
import type { StoreUnderTest } from './store-under-test.js';

const NOW = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000`;
const BLOCKING_LIMIT_MS = 5;
const BETWEEN_TRIES_MS = 20;

/** One file that all processes share. */
export async function openBetterSqlite3Store(): Promise<StoreUnderTest> {
  const driver = await ensureBetterSqlite3();
  const folder = await mkdtemp(join(tmpdir(), 'lock-test-sqlite-'));
  const store: Store = { database: { type: 'better-sqlite3', at: join(folder, 'locks.db'), driver } };
  const query = retryWhileBusy(queryOn(() => store, { timeout: BLOCKING_LIMIT_MS }));
  return {
    name: 'better-sqlite3',
    servers: [],
    storeAt: () => store,
    ...sqlStoreOperations(query, { key: '"key"', now: NOW }),
    stall: stallWith(query, ['BEGIN EXCLUSIVE'], 'COMMIT'),
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The file has one writer at a time; its driver would wait for it with a blocked event loop. */
function retryWhileBusy(query: RunQuery): RunQuery {
  return async (work) => {
    for (;;) {
      try {
        return await query(work);
      } catch (error) {
        if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
        await sleep(BETWEEN_TRIES_MS);
      }
    }
  };
}
