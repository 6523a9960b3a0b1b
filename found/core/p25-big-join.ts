// load amplification: waitMs shorter than a reply of the store (a store that is slow for a moment) — 50 callers, 16 permits, all taken
import { MemoryBackend, Net, proc, show, sleep } from './common.js';
const store = new MemoryBackend(); const A = proc(store, 'A'); for (let i = 0; i < 16; i++) await A.acquire('p', { permits: 16 });
let requests = 0; let lag = 150;
const B = proc(new Net(store, async (r) => { requests += r.acquire?.length ?? 0; await sleep(lag); }), 'B');
let settled = 0;
for (let i = 0; i < 50; i++) B.acquire('p', { permits: 16, waitMs: 100 }).catch(() => {}).finally(() => settled++);
await sleep(1_000); lag = 1; // the store is fast again
await sleep(2_000); const before = requests; await sleep(2_000);
console.log(`5 s after 50 calls with waitMs 100 in a store that answered in 150 ms for 1 s: ${settled} of 50 have settled; ${(requests - before) / 2} requests per second are still sent`);
process.exit();
