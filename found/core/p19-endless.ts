// acquire with permits and waitMs 0 (as @Locked({ permits, onContention: 'skip' })) while all permits are taken
import { redisBackend } from '../lib/backends/redis/index.js';
import { MemoryBackend, Net, proc, show, sleep } from './common.js';
import { Test } from '@nestjs/testing';
import { Injectable } from '@nestjs/common';
import { DistributedLockModule, Locked } from '../lib/index.js';
const url = process.env.TEST_REDIS_URL!;
const ns = 'ns' + process.pid;
import { bareLocks } from '../test/support/bare-locks.js';
const A = bareLocks({ backend: redisBackend({ url }), namespace: ns, instance: 'A' });
const held: any[] = []; for (let i = 0; i < 4; i++) held.push(await A.acquire('pdf', { permits: 4 }));
@Injectable() class Pdfs { @Locked('pdf', { permits: 4, onContention: 'skip' }) async render(): Promise<string | undefined> { return 'rendered'; } 
  @Locked('pdf', { permits: 4, waitMs: 1 }) async soon(): Promise<string | undefined> { return 'rendered'; } }
let requests = 0;
const inner = redisBackend({ url }); const execute = inner.execute.bind(inner);
(inner as any).execute = (r: any, ...rest: any[]) => { requests += r.acquire?.length ?? 0; return (execute as any)(r, ...rest); };
const app = await Test.createTestingModule({ imports: [DistributedLockModule.forRoot({ backend: inner, namespace: ns, instance: 'B' })], providers: [Pdfs] }).compile();
await app.init();
for (const method of ['render', 'soon'] as const) {
  let result = 'has not returned'; requests = 0; const t = Date.now();
  app.get(Pdfs)[method]().then((v: any) => (result = `returned ${v} after ${Date.now() - t} ms`), (e: any) => (result = `${show(e)} after ${Date.now() - t} ms`));
  await sleep(3_000);
  console.log(method, '- all 4 permits taken, after 3 s:', result, '|', requests, 'acquire requests sent to Redis; CPU', Math.round(process.cpuUsage().user / 1000), 'ms');
  const one = held.pop(); await one.release(); await sleep(300);
  console.log('   one permit is released:', result);
  held.push(await A.acquire('pdf', { permits: 4 }));
}
const plain = await A.acquire('x'); void plain;
process.exit();
