// Joining the other queues meets a short outage: the caller stays in the queue of the first permit only.
import { MemoryBackend, Net, proc, show, sleep } from './common.js';
const store = new MemoryBackend();
const A = proc(store, 'A');
const held: any[] = [];
for (let i = 0; i < 8; i++) held.push(await A.acquire('partition', { permits: 8 }));
let n = 0;
const net = new Net(store, (r) => { if (r.acquire) { n += 1; if (n === 2) throw new Error('ECONNRESET'); } });
const B = proc(net, 'B');
const ended = new AbortController();
let where = '';
const p = B.acquire('partition', { permits: 8, waitMs: Infinity, signal: ended.signal });
p.then((l: any) => (where = `granted ${l.permit}`), (e) => (where = show(e)));
await sleep(1_000);
const slotB = (await Promise.all(held.map(async (l) => [l.permit, 0]))).length;
let freed = 0;
for (const lock of held) { 
  if (where) break;
  await lock.release(); freed++; await sleep(3_000);
  console.log(`permit ${lock.permit} is free for 3 s; B: ${where || 'still waits'}`);
  if (freed === 4) break;
}
console.log('B:', where || 'STILL WAITS with permits free:', 'held by A:', ((await A.inspect('partition')) as any)?.holders.map((h: any) => h.permit));
ended.abort(new Error('caller aborted')); await sleep(50);
console.log('after abort of the caller\'s signal B rejects with:', where);
process.exit();
