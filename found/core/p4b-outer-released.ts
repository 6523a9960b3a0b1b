// the outer work ends (is not awaited) while the inner call still waits for its other key
import { MemoryBackend, proc, show, sleep } from './common.js';
const store = new MemoryBackend();
const A = proc(store, 'A'); const B = proc(store, 'B'); const C = proc(store, 'C');
const b = await B.acquire('b');
let inner: Promise<any> = Promise.resolve();
await A.withLock('a', {}, () => { inner = A.withLock(['a', 'b'], { reentrant: true }, async (lock) => {
  const other = await C.tryAcquire('a');
  console.log('inner work BEGINS; C holds a:', other !== null, '| lock.signal.aborted', lock.signal.aborted, '| isValid', lock.isValid());
  await sleep(300); console.log('inner work goes on to its end; signal.aborted', lock.signal.aborted);
}).catch((e) => console.log('inner rejects at its end:', show(e))); });
await sleep(100); await b.release(); await inner;
process.exit();
