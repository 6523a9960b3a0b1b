import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';
import type { Kept } from '../checkers/orphans.js';
import { type Store, dataSourceOptions } from '../../stores.js';

export type Ask = <T>(question: (runner: QueryRunner) => Promise<T>) => Promise<T>;

/** Asks a database over a connection of its own, as the last one may have been killed. */
export const askerOf =
  (store: () => Store, options: object = {}): Ask =>
  async (question) => {
    const database = new DataSource({
      ...dataSourceOptions(store()),
      poolSize: 1,
      ...options,
    } as DataSourceOptions);
    try {
      await database.initialize();
      const runner = database.createQueryRunner();
      const answer = await question(runner);
      await runner.release();
      return answer;
    } finally {
      if (database.isInitialized) await database.destroy();
    }
  };

interface Words {
  readonly key: string;
  /** The time in µs. */
  readonly now: string;
}

/** What all databases are asked in nearly the same words. */
export const sqlQuestions = (ask: Ask, { key, now }: Words) => ({
  kept: (namespace: string) =>
    ask(async (runner) => {
      const rows = (await runner.query(
        `SELECT ${key} AS name FROM distributed_lock WHERE expires_at > ${now}`,
      )) as { name: string | Buffer }[];
      const start = `${namespace}:`;
      return rows
        .map(({ name }) => String(name))
        .filter((name) => name.startsWith(start))
        .map((name): Kept => ({ key: name.slice(start.length), what: 'grant' }));
    }),
  forget: () => ask((runner) => runner.query('DELETE FROM distributed_lock')),
});

/** Keeps the table for itself for so long. */
export const stallWith = (ask: Ask, lock: readonly string[], unlock: string) => (forMs: number) =>
  ask(async (runner) => {
    for (const statement of lock) await runner.query(statement);
    await sleep(forMs);
    await runner.query(unlock);
  });
