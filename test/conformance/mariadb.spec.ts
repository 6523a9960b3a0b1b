import { mariadbStore } from '../stores.js';
import { keepsTheLaws } from './keeps-the-laws.js';
import { sqlBench } from './sql-bench.js';

keepsTheLaws(
  'mariadb',
  sqlBench(() => mariadbStore('mariadb')),
);
keepsTheLaws(
  'the mysql dialect, on MariaDB,',
  sqlBench(() => mariadbStore('mysql')),
);
