import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { transactionLock, typeormBackend } from '../lib/backends/typeorm/index.js';
import { dataSourceOptions, mariadbStore } from '../test/support/stores.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const options = dataSourceOptions(mariadbStore());
const ds = await new DataSource({ ...options, poolSize: 10 } as never).initialize();
const table = `t_${randomUUID().replaceAll('-', '_')}`;
const cleaner = typeormBackend({ dataSource: options, table, tokenMemoryMs: 1_000 });
await cleaner.execute({ acquire: [{ key: 'x', holder: randomUUID(), leaseMs: 60_000, instance: 'x' }] }, 5_000);
const names = Array.from({ length: 40 }, (_, i) => `a${String(i).padStart(3, '0')}`);
const lock = async (key: string, waitMs: number) => {
  const t = Date.now();
  const kind = await ds.transaction((m) => transactionLock(m, key, { table, waitMs })).then(() => 'locked', (e: Error) => e.constructor.name);
  return { ms: Date.now() - t, kind };
};
const fill = async () => { for (const n of names) await lock(n, 5_000); await lock('month', 5_000); };
const measure = async (what: string, forMs: number) => {
  const until = Date.now() + forMs; const waits: number[] = []; const kinds: Record<string, number> = {}; const kindsWaiting: Record<string, number> = {};
  while (Date.now() < until) {
    // Each of these keys is used by nobody else, ever: a free key.
    const one = await lock(`a0${String(Math.floor(Math.random() * 40)).padStart(2, '0')}`, 0); kinds[one.kind] = (kinds[one.kind] ?? 0) + 1;
    const two = await lock(`a0${Math.floor(Math.random() * 39)}-${randomUUID()}`, 10_000); kindsWaiting[two.kind] = (kindsWaiting[two.kind] ?? 0) + 1; waits.push(two.ms);
    await sleep(200);
  }
  console.log(what, '| free known keys with waitMs 0:', kinds, '| new keys with waitMs 10000:', kindsWaiting, `max=${Math.max(...waits)} ms, over 200 ms: ${waits.filter((m) => m > 200).length} of ${waits.length}`);
};
await fill();
await measure('no open transaction      ', 6_000);
await fill();
const runner = ds.createQueryRunner(); await runner.startTransaction();
await transactionLock(runner.manager, 'month', { table });
await measure('transactionLock kept open', 16_000);
await runner.commitTransaction(); await runner.release();
await cleaner.close(); await ds.query(`DROP TABLE ${table}`); await ds.destroy();
process.exit(0);
