import { createRequire } from 'node:module';
import type { Contender } from '../contender.js';
import { newOwner, poll } from './polling.js';

/** The same for everybody: no waiting for the disk at each commit, and nothing is lost when a process is killed. */
export const SQLITE_PRAGMAS = ['journal_mode = WAL', 'synchronous = NORMAL'];

/** What we use of better-sqlite3. */
type BetterSqlite3 = new (
  file: string,
  options: { timeout: number },
) => {
  pragma(text: string): unknown;
  exec(sql: string): void;
  prepare(sql: string): { get(...values: unknown[]): unknown; run(...values: unknown[]): unknown };
  close(): void;
};

const TABLE = `
CREATE TABLE IF NOT EXISTS plain (key TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at INTEGER NOT NULL,
  version INTEGER NOT NULL DEFAULT 1) WITHOUT ROWID`;

/** In: key, owner, its end, now. Out: one row, if it granted. */
const ACQUIRE = `
INSERT INTO plain (key, owner, expires_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, version = version + 1
WHERE expires_at <= ? RETURNING version`;

export const all: readonly Contender[] = [
  {
    name: 'plain better-sqlite3',
    store: 'sqlite',
    kind: 'floor',
    async open({ leaseMs, waitMs, stores: { sqlite } }) {
      const Database = createRequire(import.meta.url)(sqlite.driver) as BetterSqlite3;
      const database = new Database(sqlite.file, { timeout: 10_000 });
      for (const pragma of SQLITE_PRAGMAS) database.pragma(pragma);
      database.exec(TABLE);
      const acquire = database.prepare(ACQUIRE);
      const release = database.prepare('UPDATE plain SET expires_at = 0 WHERE key = ? AND owner = ?');
      const owner = newOwner();
      return {
        acquire: (key) =>
          poll(async () => {
            const [me, now] = [owner(), Date.now()];
            if (!acquire.get(key, me, now + leaseMs, now)) return undefined;
            return { release: () => release.run(key, me) };
          }, waitMs),
        close: async () => database.close(),
      };
    },
  },
];
