import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { randomUUID } from 'node:crypto';
import { typeormBackend } from '../lib/backends/typeorm/index.js';
import { dataSourceOptions, postgresStore } from '../test/support/stores.js';
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const ds = await new DataSource(dataSourceOptions(postgresStore())).initialize();
const b = typeormBackend({ dataSource: dataSourceOptions(postgresStore()), tokenMemoryMs: 1_000 });
const key = `lock/job:${randomUUID()}`;
await b.registerTicks(key, 5_000);
await b.setPaused(key, true, 5_000);
console.log('paused:', (await b.readTicks(key, 5_000)).isPaused);
await ds.query(`UPDATE distributed_lock SET tick = NULL WHERE key = $1`, [key]); // the recipe of docs/guarantees.md
console.log('after the recipe:', await b.readTicks(key, 5_000));
for (let i = 0; i < 6; i++) { await b.execute({ acquire: [{ key: randomUUID(), holder: randomUUID(), leaseMs: 100, instance: 'x' }] }, 5_000); await sleep(700); }
console.log('later:', await b.readTicks(key, 5_000), await ds.query('SELECT * FROM distributed_lock WHERE key = $1', [key]));
const nowMs = Date.now();
console.log('claim:', (await b.execute({ acquire: [{ key, holder: randomUUID(), leaseMs: 1000, instance: 'x', tick: { tickMs: nowMs, maxEarlyMs: 500, staleAfterMs: 60_000 } }] }, 5_000)).acquire);
await b.close(); await ds.destroy();
process.exit(0);
