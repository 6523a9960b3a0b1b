import Database from 'libsql';
import type { DataSourceOptions } from 'typeorm';
import { CrontabJob } from '../dispatch/crontab-job.entity.js';
import { Dispatch } from '../dispatch/dispatch.entity.js';
import { Order } from '../orders/order.entity.js';
import { Product } from '../orders/product.entity.js';
import { Report } from '../report/report.entity.js';
import type { Settings } from '../settings/settings.js';

/** The tables of one run; in Redis there are none, so they are then in SQLite. */
export function databaseOptions({ backend, url, file, run }: Settings): DataSourceOptions {
  const tables = { entities: [Product, Order, Report, CrontabJob, Dispatch], entityPrefix: `${run}_` };
  if (backend === 'postgres' || backend === 'mariadb') return { type: backend, url, ...tables };
  return {
    type: 'better-sqlite3',
    // Speaks like better-sqlite3, and brings its binary along, so that there is nothing to compile.
    driver: Database,
    database: file,
    enableWAL: true,
    // Data must survive a killed process, not a power cut; so a commit does not wait for the disk.
    prepareDatabase: (database: Database.Database) => void database.pragma('synchronous = NORMAL'),
    ...tables,
  };
}
