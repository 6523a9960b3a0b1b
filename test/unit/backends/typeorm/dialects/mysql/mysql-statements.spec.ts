import type { Session } from '../../../../../../lib/backends/typeorm/connections/session.js';
import { expect, it } from 'vitest';
import { mariadb } from '../../../../../../lib/backends/typeorm/dialects/mysql/mysql-dialect.js';

const busy = Object.assign(new Error('lock timeout'), { errno: 1205 });

it.each([
  { releasedCount: 1, result: { kind: 'unknown', cause: busy } },
  { releasedCount: 2, result: { kind: 'released', hasWaiters: true } },
])(
  'if $releasedCount of 2 grants were released, and the database does not say which, none is reported as gone',
  async ({ releasedCount, result }) => {
    const replies = [Promise.resolve({ affectedRows: releasedCount, insertId: 1 }), Promise.reject(busy)];
    const session = { query: () => replies.shift() } as unknown as Session;
    const statements = mariadb.createStatements({ name: 'locks', inSql: '`locks`' });
    const requests = ['a', 'b'].map((key) => ({ key, holder: 'ours' }));
    expect(await statements.release(session, requests)).toEqual([result, result]);
  },
);

it('the number of listed locks is in the text: MySQL takes no DOUBLE as a limit, as which mysql2 may send it', async () => {
  const sent: unknown[][] = [];
  const query = (...statement: unknown[]) => Promise.resolve((sent.push(statement), []));
  const statements = mariadb.createStatements({ name: 'locks', inSql: '`locks`' });
  for (const limit of [10, 20, 10]) {
    await statements.list({ query } as unknown as Session, { prefix: 'n:', limit });
  }
  const texts = sent.map(([sql]) => /LIMIT .*/.exec(sql as string)?.[0]);
  expect(texts).toEqual(['LIMIT 11', 'LIMIT 21', 'LIMIT 11']);
  const types = sent.flatMap(([, parameters]) => parameters as unknown[]).map(Buffer.isBuffer);
  expect(types).toEqual(Array(9).fill(true));
});
