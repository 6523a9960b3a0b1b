import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureBetterSqlite3 } from '../../services/better-sqlite3.js';
import type { Store } from '../../stores.js';
import { askerOf, sqlQuestions, stallWith } from './sql.js';
import type { World } from './world.js';

const NOW = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000`;

/** One file that all processes share. */
export async function betterSqlite3World(): Promise<World> {
  const driver = await ensureBetterSqlite3();
  const folder = await mkdtemp(join(tmpdir(), 'lock-test-sqlite-'));
  const store: Store = { database: { type: 'better-sqlite3', at: join(folder, 'locks.db'), driver } };
  const ask = askerOf(() => store);
  return {
    name: 'better-sqlite3',
    servers: [],
    storeAt: () => store,
    ...sqlQuestions(ask, { key: '"key"', now: NOW }),
    stall: stallWith(ask, ['BEGIN EXCLUSIVE'], 'COMMIT'),
    close: () => rm(folder, { recursive: true, force: true }),
  };
}
