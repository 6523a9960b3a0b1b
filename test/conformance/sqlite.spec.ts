import { join } from 'node:path';
import { betterSqlite3Store, libsqlStore } from '../stores.js';
import { tempFolder } from '../temp-folder.js';
import { keepsTheLaws } from './keeps-the-laws.js';
import { sqlBench } from './sql-bench.js';

const folder = tempFolder();

keepsTheLaws(
  'better-sqlite3',
  sqlBench(() => betterSqlite3Store(join(folder, 'better-sqlite3.db'))),
);
keepsTheLaws(
  'libsql as the driver of better-sqlite3',
  sqlBench(() => libsqlStore(join(folder, 'libsql.db'))),
);
