import { postgresStore } from '../support/stores.js';
import { describeLaws } from './law-suite.js';
import { sqlBench } from './sql-bench.js';

describeLaws('postgres', sqlBench(postgresStore));
