// @Locked({ permits, onContention: 'skip' }) is acquire with waitMs 0
import { MemoryBackend, Net, proc, sleep } from './common.js';
let skipped = 0, rounds = 200;
for (let round = 0; round < rounds; round++) {
  const store = new MemoryBackend(); const lag = () => sleep(1 + Math.random() * 2);
  const locks = Array.from({ length: 8 }, (_, i) => proc(new Net(store, lag, lag), `p${i}`));
  const got = await Promise.all(locks.map(async (l) => { await sleep(Math.random() * 4); return l.acquire('pdf', { permits: 16, waitMs: 0 }).catch(() => null); }));
  skipped += got.filter((g) => g === null).length;
}
console.log(`waitMs 0: ${skipped} of ${rounds * 8} calls refused with at most 8 of 16 permits in use`);
process.exit();
