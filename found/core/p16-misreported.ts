// several keys: the second key is asked for by another call of this process when waitMs is nearly over
import { MemoryBackend, Net, proc, show, sleep } from './common.js';
const store = new MemoryBackend(); const O = proc(store, 'O');
const a = await O.acquire('a');
const P = proc(new Net(store, async (r) => { if (r.acquire?.some((x: any) => x.key.endsWith(':b'))) await sleep(400); }), 'P');
const t = Date.now();
const p = P.acquire(['a', 'b'], { waitMs: 2_000 }).then(() => 'granted', show);
await sleep(1_700);
void a.release();
const other = P.acquire('b'); // of the same process, 300 ms before the end, answered in 400 ms
console.log('several keys:', await p, `(after ${Date.now() - t} ms)`); await other.catch(() => {});
process.exit();
