import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';
import type { StoredEntry } from '../checkers/orphans.js';
import { type Store, dataSourceOptions } from '../../../support/stores.js';

export type RunQuery = <T>(question: (runner: QueryRunner) => Promise<T>) => Promise<T>;

/** Asks a database over a connection of its own, as the last one may have been killed. */
export const queryOn =
  (store: () => Store, options: object = {}): RunQuery =>
  async (work) => {
    const database = new DataSource({
      ...dataSourceOptions(store()),
      poolSize: 1,
      ...options,
    } as DataSourceOptions);
    try {
      await database.initialize();
      const runner = database.createQueryRunner();
      const result = await work(runner);
      await runner.release();
      return result;
    } finally {
      if (database.isInitialized) await database.destroy();
    }
  };

interface SqlExpressions {
  readonly key: string;
  /** The time in µs. */
  readonly now: string;
}

/** What all databases are asked in nearly the same words. */
export const sqlStoreOperations = (query: RunQuery, { key, now }: SqlExpressions) => ({
  storedEntries: (namespace: string) =>
    query(async (runner) => {
      const rows = (await runner.query(
        `SELECT ${key} AS name FROM distributed_lock WHERE expires_at > ${now}`,
      )) as { name: string | Buffer }[];
      const prefix = `${namespace}:`;
      return rows
        .map(({ name }) => String(name))
        .filter((name) => name.startsWith(prefix))
        .map((name): StoredEntry => ({ key: name.slice(prefix.length), what: 'grant' }));
    }),
  deleteAll: () => query((runner) => runner.query('DELETE FROM distributed_lock')),
});

/** Keeps the table for itself for so long. */
export const stallWith = (query: RunQuery, lock: readonly string[], unlock: string) => (forMs: number) =>
  query(async (runner) => {
    for (const statement of lock) await runner.query(statement);
    await sleep(forMs);
    await runner.query(unlock);
  });
