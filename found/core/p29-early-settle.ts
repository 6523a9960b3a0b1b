// a lost part counts twice: withLock of several keys settles before the release of the other key has left the process
import { MemoryBackend, proc, show, sleep } from './common.js';
const store = new MemoryBackend();
class Lanes { name = 'memory'; lanes = 4; maxBatchSize = 1; clock = store.clock;
  async execute(r: any, t: number, onResult: any, onReleaseSent: any) {
    if (r.release?.[0].key.endsWith(':b')) await sleep(800); // still waits for its connection
    if (r.release) onReleaseSent(0);
    if (r.release?.[0].key.endsWith(':b')) console.log('   the release of b leaves the process at', Date.now() - t0);
    await sleep(5);
    return store.execute(r);
  }
  inspect(k: string) { return store.inspect(k); } onReleased() { return () => {}; } close() { return Promise.resolve(); } }
setInterval(() => {}, 1000);
const A = proc(new Lanes(), 'A'); let t0 = 0;
for (const lose of [false, true]) {
  await A.withLock(['a', 'b'], {}, async (lock) => {
    if (lose) { await store.forceRelease('ns:a', lock.fencingTokenOf('a')); await A.confirmHeld('a'); }
    t0 = Date.now();
  }).catch((e) => console.log('  ', e.name));
  console.log(lose ? 'a was lost:' : 'nothing lost:', 'withLock settles at', Date.now() - t0, 'ms');
  await sleep(1_000);
}
process.exit();
