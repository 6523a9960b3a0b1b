import type { Session } from '../../../../../../lib/backends/typeorm/requests/session.js';
import { expect, it } from '@jest/globals';
import { mariadb } from '../../../../../../lib/backends/typeorm/dialects/mysql/mysql-dialect.js';

const busy = Object.assign(new Error('lock timeout'), { errno: 1205 });

it.each([
  { releasedCount: 1, result: { kind: 'unknown', cause: busy } },
  { releasedCount: 2, result: { kind: 'released', hasWaiters: true } },
])(
  'if $releasedCount of 2 claims were released, and the database does not say which, none is reported as gone',
  async ({ releasedCount, result }) => {
    const replies = [Promise.resolve({ affectedRows: releasedCount, insertId: 1 }), Promise.reject(busy)];
    const session = { query: () => replies.shift() } as unknown as Session;
    const statements = mariadb.createStatements({ name: 'locks', inSql: '`locks`' });
    const claims = ['a', 'b'].map((key) => ({ key, holder: 'ours' }));
    expect(await statements.release(session, claims)).toEqual([result, result]);
  },
);
