import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { transactionLock, typeormBackend } from '../lib/backends/typeorm/index.js';
import { dataSourceOptions, mariadbStore } from '../test/support/stores.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const options = dataSourceOptions(mariadbStore());
const ds = await new DataSource({ ...options, poolSize: 10 } as never).initialize();
const table = `t_${randomUUID().replaceAll('-', '_')}`;
const b = typeormBackend({ dataSource: options, table, tokenMemoryMs: 1_000 });
const count = async () => (await ds.query(`SELECT count(*) AS n FROM ${table}`))[0].n;
const request = { key: 'lease', holder: randomUUID(), leaseMs: 500, instance: 'x' };
await b.execute({ acquire: [request] }, 5_000); await b.execute({ release: [request] }, 5_000);
console.log('rows after a lock was used', await count());
await sleep(5_000);
console.log('rows 5 s later', await count(), '(a quiet time)');
for (let i = 0; i < 300; i += 1) await ds.transaction((m) => transactionLock(m, `order:${i}`, { table }));
for (let i = 0; i < 3; i += 1) { await sleep(5_000); console.log('rows of transactionLock,', 5 * (i + 1), 's = ', 5 * (i + 1), 'x tokenMemoryMs later:', await count(), '| check:', await b.check(5_000)); }
await b.close(); await ds.query(`DROP TABLE ${table}`); await ds.destroy(); process.exit(0);
