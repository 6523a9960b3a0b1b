// runNow of two replicas at once: the second one gets the record of an OLDER manual run if the history write of the new one is late.
import { MemoryBackend, Net, sleep } from './common.js';
import { Test } from '@nestjs/testing';
import { CronRuns, DistributedLockModule } from '../lib/index.js';
const store = new MemoryBackend();
let lateHistory = false;
class LateHistory extends Net { override async appendHistory(k: string, e: string) { if (lateHistory) await sleep(300); return this.inner.appendHistory(k, e); } }
const boot = async (instance: string, backend: any, work: () => any) => {
  const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend, namespace: 'ns', instance })] }).compile();
  await app.init();
  const runs = app.get(CronRuns);
  const onTick = runs.guard('job', { cronTime: '0 * * * *', timeZone: 'UTC' }, work);
  return { runs, onTick };
};
let fail = true;
const ran: string[] = [];
const one = await boot('one', new LateHistory(store), () => { ran.push('one'); if (fail) throw new Error('boom of the first run'); });
const two = await boot('two', new Net(store, async (r) => { if (r.acquire) await sleep(20); }), () => { ran.push('two'); });
const first = await one.runs.runNow('job');
console.log('an earlier manual run:', first.outcome, first.error, first.tick.toISOString());
await sleep(1_500);
fail = false; lateHistory = true;
const t = new Date();
const [a, b] = await Promise.all([one.runs.runNow('job'), two.runs.runNow('job')]);
console.log('called at', t.toISOString(), 'ran:', ran);
console.log('replica one gets:', a.instance, a.outcome, a.tick.toISOString());
console.log('replica two gets:', b.instance, b.outcome, b.error, b.tick.toISOString());
process.exit();
