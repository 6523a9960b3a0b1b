import { MemoryBackend, Net, proc, show, sleep } from './common.js';
import { Test } from '@nestjs/testing';
import { CronRuns, DistributedLockModule } from '../lib/index.js';
import { manualStoreKey } from '../lib/core/key.js';
// a replica dies between the two claims of runNow: how long do calls of other replicas take, and what do they cost?
const store = new MemoryBackend(); const dead = proc(store, 'dead');
let reads = 0;
class Counting extends Net { override inspect(k: string) { reads++; return this.inner.inspect(k); } }
const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend: new Counting(store) as any, namespace: 'ns', instance: 'two' })] }).compile();
await app.init();
const runs = app.get(CronRuns); setInterval(() => {}, 1000);
runs.guard('job', { cronTime: '0 * * * *', timeZone: 'UTC', leaseMs: 5_000 }, () => {});
const onTick = runs.guard('job', { cronTime: '0 * * * *', timeZone: 'UTC', leaseMs: 5_000 }, () => {}); void onTick;
await dead.jobs.claimTick('job', { storeKey: manualStoreKey('ns', 'job'), leaseMs: 5_000, tick: { tickMs: 1, maxEarlyMs: 0, staleAfterMs: Number.MAX_SAFE_INTEGER } });
await dead.close();
const t = Date.now();
await runs.runNow('job').then((r) => console.log(r), (e) => console.log(show(e)));
console.log(`runNow took ${Date.now() - t} ms and ${reads} inspections, with leaseMs 5000`);
process.exit();
