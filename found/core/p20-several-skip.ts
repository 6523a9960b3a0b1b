import { MemoryBackend, Net, proc, show, sleep } from './common.js';
const store = new MemoryBackend(); const A = proc(store, 'A'); await A.acquire('b');
let n = 0; const B = proc(new Net(store, (r) => { if (r.acquire) n++; }), 'B');
setInterval(() => {}, 1000);
for (const o of [{ waitMs: 0 }, { waitMs: 1 }]) { const t = Date.now(); await B.acquire(['a', 'b', 'c'], o).catch((e) => console.log(show(e), Date.now() - t, 'ms,', n, 'requests')); }
console.log('left held:', (await A.list({})).locks.map((l) => l.key));
// permits: does the endless loop end with the signal of the caller, and at shutdown?
for (let i = 0; i < 3; i++) await A.acquire('p', { permits: 3 });
const slow = () => sleep(2);
for (const how of ['signal', 'shutdown']) {
  const C = proc(new Net(store, slow), 'C'); const ended = new AbortController(); let r = 'not settled';
  C.acquire('p', { permits: 3, waitMs: 0, signal: ended.signal }).then(() => (r = 'granted'), (e) => (r = show(e)));
  await sleep(300); if (how === 'signal') ended.abort(new Error('mine')); else { C.stopGranting(); await C.drain({ drainMs: 500, abortGraceMs: 500 }); }
  await sleep(200); console.log(how, '->', r);
}
process.exit();
