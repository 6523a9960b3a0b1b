// several keys with reentrant: the outer lock is lost while the inner call waits for the other key.
import { MemoryBackend, proc, show, sleep } from './common.js';
const store = new MemoryBackend();
const A = proc(store, 'A'); const B = proc(store, 'B'); const C = proc(store, 'C');
const b = await B.acquire('b');
setTimeout(() => void b.release(), 900);
await A.withLock('a', { renew: false, leaseMs: 300 }, async (outer) => {
  try {
  await A.withLock(['a', 'b'], { reentrant: true, waitMs: 5_000 }, async (lock) => {
    const other = await C.tryAcquire('a');
    console.log('work of A begins; C holds a:', other !== null, '| outer valid', outer.isValid(), '| lock.isValid', lock.isValid(), '| lock.signal.aborted', lock.signal.aborted);
    await sleep(500);
    console.log('later: lock.signal.aborted', lock.signal.aborted);
  });
  } catch (e) { console.log('inner rejects', show(e)); }
}).catch((e) => console.log('outer rejects', show(e)));
// the same with the single key, for comparison
await sleep(100);
await A.withLock('x', { renew: false, leaseMs: 300 }, async () => {
  await sleep(400);
  await A.withLock('x', { reentrant: true }, () => console.log('single: work begins')).catch((e) => console.log('single key: work does not begin,', show(e)));
}).catch(() => {});
process.exit();
