// A permit caller whose first request meets a slow store waits in ONE queue only, although other permits are free.
import { MemoryBackend, Net, proc, show, sleep } from './common.js';
const store = new MemoryBackend();
const A = proc(store, 'A');
const held: any[] = [];
for (let i = 0; i < 5; i++) held.push(await A.acquire('pdf', { permits: 5 }));
let slow = true;
const net = new Net(store, () => {}, async (r) => { if (slow && r.acquire) await sleep(700); });
const B = proc(net, 'B');
const t0 = Date.now();
let where = '';
B.acquire('pdf', { permits: 5, waitMs: 8_000, leaseMs: 1_000 }) // so a request times out after 500 ms
  .then((l: any) => (where = `granted permit ${l.permit}`), (e) => (where = show(e))).finally(() => (where += ` after ${Date.now() - t0} ms`));
await sleep(600); slow = false; // the store was slow once, for 700 ms
await sleep(900);
const info: any = await B.inspect('pdf');
const mine = info.holders.filter((h: any) => h.waiting > 0).map((h: any) => h.permit);
console.log('B waits in the queues of the permits', mine);
for (const lock of held.filter((l) => !mine.includes(l.permit))) await lock.release();
console.log('A released all others; held:', ((await A.inspect('pdf')) as any).holders.map((h: any) => h.permit));
const C = proc(store, 'C');
console.log('a newcomer gets one at once:', (await C.tryAcquire('pdf', { permits: 5 }))?.permit);
await sleep(7_500);
console.log('B:', where);
process.exit();
