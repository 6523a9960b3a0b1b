// tryAcquire of permits: callers far fewer than permits, and yet null.
import { MemoryBackend, Net, proc, sleep } from './common.js';
const permits = Number(process.argv[2] ?? 16), callers = Number(process.argv[3] ?? 8), rounds = 200;
let nulls = 0, roundsWithNull = 0, skips = 0;
for (let round = 0; round < rounds; round++) {
  const store = new MemoryBackend();
  const lag = () => sleep(1 + Math.random() * 2);
  const locks = Array.from({ length: callers }, (_, i) => proc(new Net(store, lag, lag), `p${i}`));
  const got = await Promise.all(locks.map(async (l) => { await sleep(Math.random() * 4); return l.tryAcquire('pdf', { permits }); }));
  const n = got.filter((g) => g === null).length;
  nulls += n; if (n) roundsWithNull++;
}
console.log(`${callers} callers of ${callers} processes, ${permits} permits, ${rounds} rounds: ${nulls} got null, in ${roundsWithNull} rounds`);
process.exit();
