import { afterAll, beforeAll } from '@jest/globals';
import { startMariadb } from '../services/mariadb.js';
import type { Service } from '../services/service.js';
import { keepsTheLaws } from './keeps-the-laws.js';
import { sqlBench } from './sql-bench.js';

/** Each changes what a statement means or sees. */
const SETTINGS = [
  '--sql-mode=EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,ANSI_QUOTES,NO_BACKSLASH_ESCAPES',
  '--transaction-isolation=READ-COMMITTED',
  '--innodb-snapshot-isolation=ON',
];

let server: Service;
beforeAll(async () => {
  server = await startMariadb({ args: SETTINGS });
});
afterAll(() => server.stop());

keepsTheLaws(
  'a MariaDB with modes, READ COMMITTED and snapshot isolation',
  sqlBench(() => ({ database: { type: 'mariadb', at: server.url } })),
);
