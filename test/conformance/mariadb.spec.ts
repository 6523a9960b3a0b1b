import { mariadbStore } from '../support/stores.js';
import { describeLaws, lawsOfSettings } from './law-suite.js';
import { sqlBench } from './sql-bench.js';

describeLaws(
  'mariadb',
  sqlBench(() => mariadbStore('mariadb')),
);
describeLaws(
  'the mysql dialect, on MariaDB,',
  sqlBench(() => mariadbStore('mysql')),
  { laws: lawsOfSettings },
);
