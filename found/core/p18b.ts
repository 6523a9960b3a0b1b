import { MemoryBackend, Net, proc, show, sleep } from './common.js';
setInterval(() => {}, 1000);
const store = new MemoryBackend();
const A = proc(store, 'A'); for (let i = 0; i < 4; i++) await A.acquire('p', { permits: 4 });
const sizes: number[] = [];
const B = proc(new Net(store, (r) => { if (r.acquire) sizes.push(r.acquire.length); }), 'B');
await B.acquire('p', { permits: 4, waitMs: 0 }).then((l) => console.log('granted'), (e) => console.log(show(e)));
console.log('batches', sizes);
process.exit();
