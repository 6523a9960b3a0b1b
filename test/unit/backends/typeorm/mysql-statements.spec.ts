import { expect, it } from '@jest/globals';
import type { Visit } from '../../../../lib/backends/typeorm/dialect.js';
import { mariadb } from '../../../../lib/backends/typeorm/mysql.js';

it('nobody is told that he has lost what was freed, though the database is too busy to say of whom', async () => {
  const busy = Object.assign(new Error('lock timeout'), { errno: 1205 });
  const answers = [Promise.resolve({ affectedRows: 2, insertId: 1 }), Promise.reject(busy)];
  const visit = { query: () => answers.shift() } as unknown as Visit;
  const statements = mariadb.on({ name: 'locks', inSql: '`locks`' });
  const claims = ['a', 'b'].map((key) => ({ key, holder: 'ours' }));
  expect(await statements.release(visit, claims)).toEqual(
    claims.map(() => ({ kind: 'unknown', cause: busy })),
  );
});
