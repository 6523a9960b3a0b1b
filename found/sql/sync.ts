import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { distributedLockEntity, typeormBackend } from '../lib/backends/typeorm/index.js';
import { dataSourceOptions, postgresStore, mariadbStore, libsqlStore } from '../test/support/stores.js';
import { rmSync } from 'node:fs';
rmSync('libsql.db', { force: true });
for (const [name, store] of [['postgres', postgresStore()], ['mariadb', mariadbStore()], ['better-sqlite3', libsqlStore('libsql.db')]] as const) {
  const options = dataSourceOptions(store);
  const first = typeormBackend({ dataSource: options, table: 'sync_lock' });
  await first.check(20_000); await first.close(); // the library has created the table
  for (let boot = 1; boot <= 2; boot += 1) {
    const sqls: string[] = [];
    const logger = { logQuery: (q: string) => void (/ALTER|DROP|CREATE|RENAME/i.test(q) && !/^\s*SELECT/i.test(q) && sqls.push(q)), logQueryError() {}, logQuerySlow() {}, logSchemaBuild() {}, logMigration() {}, log() {} };
    const ds = await new DataSource({ ...options, synchronize: true, entities: [distributedLockEntity({ type: options.type as never, table: 'sync_lock' })], logging: true, logger } as never).initialize();
    console.log(name, 'boot', boot, sqls);
    await ds.destroy();
  }
  const ds = await new DataSource(options).initialize(); await ds.query('DROP TABLE sync_lock'); await ds.destroy();
}
process.exit(0);
