import { postgresStore } from '../stores.js';
import { keepsTheLaws } from './keeps-the-laws.js';
import { sqlBench } from './sql-bench.js';

keepsTheLaws('postgres', sqlBench(postgresStore));
