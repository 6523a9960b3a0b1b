import { MemoryBackend, proc, sleep } from './common.js';
const store = new MemoryBackend(); const A = proc(store, 'A'); const B = proc(store, 'B');
const b = await B.acquire('b'); setTimeout(() => void b.release(), 950);
const t = Date.now();
const lock = await A.acquire(['a', 'b'], { renew: false, leaseMs: 1_000 });
console.log(`acquired after ${Date.now() - t} ms with leaseMs 1000: ${Math.round(lock.remainingMs())} ms are left`);
process.exit();
