// A manual run whose work awaits app.close().
setInterval(() => undefined, 1000); // keeps the process alive
import { MemoryBackend, sleep } from './common.js';
import { Test } from '@nestjs/testing';
import { CronRuns, DistributedLockModule } from '../lib/index.js';
for (const how of ['tick', 'runNow'] as const) {
  const store = new MemoryBackend();
  const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend: store, namespace: 'ns', instance: 'one', shutdown: { drainMs: 4_000, abortGraceMs: 1_000 } })] }).compile();
  app.useLogger(false as any);
  await app.init();
  const runs = app.get(CronRuns);
  const t0 = Date.now();
  const onTick = runs.guard('job', { cronTime: '* * * * * *', timeZone: 'UTC' }, async (run) => {
    await app.close();
    console.log(how, '- app.close() inside the run resolved after', Date.now() - t0, 'ms; signal aborted:', run.signal.aborted, (run.signal.reason as any)?.message?.slice(0, 60));
  });
  if (how === 'tick') await onTick(); else await runs.runNow('job').then((r) => console.log(' record', r.outcome), (e) => console.log(' ', e.message));
  await sleep(1500);
  console.log('  left in the store:', (store as any).size);
}
process.exit();
