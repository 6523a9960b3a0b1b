import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { transactionLock, typeormBackend } from '../lib/backends/typeorm/index.js';
import { dataSourceOptions, mariadbStore } from '../test/support/stores.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const options = dataSourceOptions(mariadbStore());
const ds = await new DataSource({ ...options, poolSize: 10 } as never).initialize();
const b = typeormBackend({ dataSource: options }); // all defaults
const t0 = Date.now(); const log = (...a: unknown[]) => console.log(`${((Date.now() - t0) / 1000).toFixed(1)} s`, ...a);
const renew = setInterval(() => void b.execute({ renew: [{ key: 'lock:x', holder: 'h', leaseMs: 30_000 }] }, 2_000), 5_000);
await b.execute({ acquire: [{ key: 'lock:x', holder: 'h', leaseMs: 30_000, instance: 'x' }] }, 5_000);
for (let i = 0; i < 30; i += 1) await ds.transaction((m) => transactionLock(m, `account:${100 + i}`));
await ds.transaction((m) => transactionLock(m, 'report'));
log('31 keys were locked once');
await sleep(57_000);
// The order of this transaction is the order of all transactions of the application: first the report, then the account.
const outcome = await ds.transaction(async (m) => {
  await transactionLock(m, 'report'); log('report locked');
  await sleep(37_000);
  log('account:105 follows'); await transactionLock(m, 'account:105');
}).then(() => 'committed', (e: Error & { cause?: Error }) => `${e.constructor.name} (${e.cause?.message})`);
log(outcome); clearInterval(renew);
await b.close(); await ds.destroy(); process.exit(0);
