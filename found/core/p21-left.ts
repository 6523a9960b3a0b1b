import { MemoryBackend, proc, show, sleep } from './common.js';
const store = new MemoryBackend(); const A = proc(store, 'A'); await A.acquire('b'); const B = proc(store, 'B');
await B.acquire(['a', 'b', 'c'], { waitMs: 0 }).catch((e) => console.log(e.name));
console.log('at once:', (await A.list({})).locks.map((l) => l.key)); await sleep(20);
console.log('20 ms later:', (await A.list({})).locks.map((l) => l.key));
// registering a permit key after a mistaken plain call in another order
process.exit();
