import { expect, it } from 'vitest';
import { commitAnswerOf } from '../../../../../../lib/backends/typeorm/rows/transactions/commit-answer.js';

it.each([
  ['a constraint of PostgreSQL', { code: '23505' }, 'ended'],
  ['a cancelled statement of PostgreSQL', { code: '57014' }, 'ended'],
  ['a deadlock of MariaDB', { code: 'ER_LOCK_DEADLOCK', errno: 1213 }, 'ended'],
  ['a refused plugin of MySQL', { code: 'ER_RUN_HOOK_ERROR', errno: 3100 }, 'ended'],
  ['a timeout of pg', { message: 'Query read timeout' }, 'none'],
  ['a connection that was cut', { code: 'ECONNRESET', errno: -104 }, 'none'],
  ['a broken pipe', { code: 'EPIPE', errno: -32 }, 'none'],
  ['a connection of mysql2 that ended', { code: 'PROTOCOL_CONNECTION_LOST' }, 'none'],
  ['a PgBouncer that has lost its server', { code: '08P01' }, 'lost'],
  ['a PostgreSQL that shuts down', { code: '57P01' }, 'lost'],
  ['a MySQL that shuts down', { code: 'ER_SERVER_SHUTDOWN', errno: 1053 }, 'lost'],
  ['a MaxScale that has lost its server', { code: 'ER_CONNECTION_KILLED', errno: 1927 }, 'lost'],
  ['a ProxySQL that has lost its server', { code: 'UNKNOWN_CODE_PLEASE_REPORT', errno: 2013 }, 'lost'],
])('to COMMIT, %s answers: %j is %s', (_, driverError, answer) => {
  expect(commitAnswerOf({ driverError })).toBe(answer);
});
