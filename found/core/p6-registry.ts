import { MemoryBackend, proc, show } from './common.js';
const A = proc(new MemoryBackend(), 'A');
const p = await A.acquire('pdf', { permits: 3 });
console.log('inspect before:', (await A.inspect('pdf'))?.permit);
await A.acquire('pdf').catch((e) => console.log('a mistaken call:', show(e)));
console.log('inspect after :', await A.inspect('pdf'), '| forceRelease:', await A.forceRelease('pdf', p.fencingToken));
// and after eviction of the key from the 1,024 known ones, correct callers are refused
for (let i = 0; i < 1_100; i++) await (await A.acquire(`k${i}`, { permits: 2 })).release();
await A.acquire('pdf', { permits: 3 }).then(() => console.log('ok'), (e) => console.log('a correct call:', show(e)));
process.exit();
