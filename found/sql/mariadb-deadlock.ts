import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { transactionLock, typeormBackend } from '../lib/backends/typeorm/index.js';
import { dataSourceOptions, mariadbStore } from '../test/support/stores.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const options = dataSourceOptions(mariadbStore());
const ds = await new DataSource({ ...options, poolSize: 10 } as never).initialize();
const table = `t_${randomUUID().replaceAll('-', '_')}`;
await ds.query(`CREATE TABLE app_${table} (id int primary key auto_increment, x int)`);
const withCleaner = process.argv[2] !== 'none';
const cleaner = typeormBackend({ dataSource: options, table, tokenMemoryMs: withCleaner ? 1_000 : 600_000 });
await cleaner.execute({ acquire: [{ key: 'x', holder: randomUUID(), leaseMs: 60_000, instance: 'x' }] }, 5_000);
const counts: Record<string, number> = {};
for (let round = 0; round < 6; round += 1) {
  // Each month its keys were locked once, by transactions that have committed.
  for (let i = 0; i < 30; i += 1) await ds.transaction((m) => transactionLock(m, `a${String(i).padStart(3, '0')}`, { table }));
  await ds.transaction((m) => transactionLock(m, 'month', { table }));
  // The only transaction of the application: it always locks 'month' first, then 'a005'.
  const outcome = await ds.transaction(async (m) => {
    await transactionLock(m, 'month', { table });
    await m.query(`INSERT INTO app_${table} (x) VALUES (1), (2), (3)`);
    await sleep(2_500);
    await transactionLock(m, 'a005', { table });
  }).then(() => 'committed', (e: Error & { cause?: Error }) => `${e.constructor.name} (${e.cause?.message})`);
  counts[outcome] = (counts[outcome] ?? 0) + 1;
}
console.log(withCleaner ? 'tokenMemoryMs 1000:' : 'no clean-up:', counts, 'rows of the application:', await ds.query(`SELECT count(*) AS n FROM app_${table}`));
await cleaner.close(); await ds.query(`DROP TABLE ${table}`); await ds.query(`DROP TABLE app_${table}`); await ds.destroy();
process.exit(0);
