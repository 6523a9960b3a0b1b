import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { dataSourceOptions, sqlServers } from '../support/stores.js';

const LIMIT_MS = 20_000;
const docs = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
const [, chapter = ''] = docs.split('## Delete old rows');
const blocks = [...chapter.matchAll(/```sql\n(.*?)```/gs)].map(([, sql = '']) => sql);

/** The statements of the docs for this server, on this table. */
const statementsFor = (type: string, table: string, us: number): readonly string[] =>
  blocks[type === 'postgres' ? 1 : 0]!.replaceAll('distributed_lock', table)
    .replaceAll(':us', String(us))
    .split(';')
    .map((sql) => sql.trim())
    .filter((sql) => sql !== '');

it.each(sqlServers)(
  'on %s the documented clean-up keeps no lock waiting, and deletes old rows alone',
  async (type, storeOf) => {
    const table = `clean_${randomUUID().replaceAll('-', '')}`;
    const options = dataSourceOptions(storeOf());
    const backend = typeormBackend({ dataSource: options, table });
    const database = await new DataSource({ ...options, poolSize: 1 } as DataSourceOptions).initialize();
    const quote = type === 'postgres' ? '"' : '`';
    const request = (key: string) => ({ key, holder: randomUUID(), leaseMs: 60_000, instance: 'spec' });
    try {
      const held = ['a', 'old-2', 'z'].map(request);
      const job = {
        ...request('job'),
        tick: { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 },
      };
      const old = ['old-1', 'old-3'].map(request);
      await backend.execute({ acquire: [...held, ...old, job] }, LIMIT_MS);
      await backend.execute({ release: [...old, { ...job, hasEnded: true }] }, LIMIT_MS);
      await database.query(`UPDATE ${table} SET acquired_at = 1 WHERE acquired_at > 1`);
      const statements = statementsFor(type, table, Date.now() * 1_000);
      await database.query(statements.slice(0, -1).join('') || 'SELECT 1');
      await database.query(type === 'postgres' ? 'BEGIN' : 'START TRANSACTION');
      await database.query(statements.at(-1)!);
      const during = await backend.execute(
        { renew: held, acquire: ['aa', 'old-4', 'zz'].map(request) },
        LIMIT_MS,
      );
      expect(during.renew.map(({ kind }) => kind)).toEqual(['renewed', 'renewed', 'renewed']);
      expect(during.acquire.map(({ kind }) => kind)).toEqual(['granted', 'granted', 'granted']);
      await database.query('COMMIT');
      const rows = await database.query<{ key: Buffer | string }[]>(
        `SELECT ${quote}key${quote} AS ${quote}key${quote} FROM ${table}`,
      );
      expect(rows.map(({ key }) => String(key)).sort()).toEqual([
        'a',
        'aa',
        'job',
        'old-2',
        'old-4',
        'z',
        'zz',
      ]);
    } finally {
      await backend.close();
      await database.query(`DROP TABLE ${table}`);
      await database.destroy();
    }
  },
);
