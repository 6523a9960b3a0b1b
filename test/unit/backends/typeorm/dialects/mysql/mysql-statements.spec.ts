import { expect, it } from '@jest/globals';
import type { Session } from '../../../../../../lib/backends/typeorm/dialects/dialect.js';
import { mariadb } from '../../../../../../lib/backends/typeorm/dialects/mysql/mysql-dialect.js';

const busy = Object.assign(new Error('lock timeout'), { errno: 1205 });

it.each([
  { freed: 1, answer: { kind: 'unknown', cause: busy } },
  { freed: 2, answer: { kind: 'released', hasWaiters: true } },
])('where $freed of 2 were freed, and nobody says which, none is told as gone', async ({ freed, answer }) => {
  const answers = [Promise.resolve({ affectedRows: freed, insertId: 1 }), Promise.reject(busy)];
  const visit = { query: () => answers.shift() } as unknown as Session;
  const statements = mariadb.createStatements({ name: 'locks', inSql: '`locks`' });
  const claims = ['a', 'b'].map((key) => ({ key, holder: 'ours' }));
  expect(await statements.release(visit, claims)).toEqual([answer, answer]);
});
