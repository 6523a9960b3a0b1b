// overlap: 'allow', onDeadRun: 'retry': a replica died in two runs; another one retries both in one turn: one token, one record in the history?
import { redisBackend } from '../lib/backends/redis/index.js';
import { sleep } from './common.js';
import { Test } from '@nestjs/testing';
import { CronRuns, DistributedLockModule } from '../lib/index.js';
const url = process.env.TEST_REDIS_URL!; const ns = 'h' + process.pid;
const boot = async (instance: string, work: (run: any) => any) => { const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend: redisBackend({ url }), namespace: ns, instance, shutdown: { drainMs: 0, abortGraceMs: 0 } })] }).compile(); app.useLogger(false as any);
  const runs = app.get(CronRuns); const onTick = runs.guard('job', { everyMs: 1_000, overlap: 'allow', onDeadRun: 'retry', leaseMs: 1_500 }, work); await app.init(); return { app, runs, onTick }; };
const one = await boot('one', () => new Promise(() => {}));
await sleep(1_100 - Date.now() % 1_000); void one.onTick(); await sleep(1_000); void one.onTick(); await sleep(300);
await one.app.close(); await sleep(4_500);
const ran: any[] = [];
const two = await boot('two', (run) => { ran.push(run); });
await sleep(4_500);
console.log('retried runs:', ran.map((r) => `${r.tick.toISOString()} attempt ${r.attempt} token ${r.fencingToken}`));
console.log('history', (await two.runs.history('job')).runs.map((r) => [r.tick.toISOString(), r.attempt, r.instance, r.outcome, String(r.fencingToken)].join(' ')));
process.exit();
