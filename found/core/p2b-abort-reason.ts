import { MemoryBackend, Net, proc, show, sleep } from './common.js';
for (const how of ['signal', 'waitMs'] as const) {
  const store = new MemoryBackend(); const A = proc(store, 'A');
  for (let i = 0; i < 3; i++) await A.acquire('p', { permits: 3 });
  let n = 0;
  const B = proc(new Net(store, (r) => { if (r.acquire && ++n === 2) throw new Error('ECONNRESET'); }), 'B');
  const ended = new AbortController();
  const p = B.acquire('p', { permits: 3, waitMs: how === 'signal' ? 60_000 : 3_000, signal: ended.signal });
  setTimeout(() => ended.abort(new Error('the reason of my signal')), how === 'signal' ? 1_500 : 60_000).unref();
  await p.catch((e) => console.log(how, '->', show(e)));
}
process.exit();
