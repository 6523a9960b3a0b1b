// a process dies right after its second request was answered: how many permits does ONE caller block?
import { MemoryBackend, Net, proc, sleep } from './common.js';
const store = new MemoryBackend(); const A = proc(store, 'A'); await A.acquire('pdf', { permits: 8 });
let most = 0;
for (let i = 0; i < 40 && most < 3; i++) {
  let dead = false;
  const B = proc(new Net(store, () => { if (dead) return new Promise<void>(() => {}); }, (r) => { if ((r.acquire?.length ?? 0) > 1) { dead = true; return new Promise<void>(() => {}); } }), 'B' + i);
  void B.tryAcquire('pdf', { permits: 8, leaseMs: 30_000 }).then((l) => void l?.release(), () => {});
  await sleep(30);
  const held = ((await A.inspect('pdf')) as any).holders.filter((h: any) => h.instance === 'B' + i).length; most = Math.max(most, held);
}
console.log(`one caller that died has ${most} of 8 permits for its lease; a newcomer:`, await A.tryAcquire('pdf', { permits: 8 }));
process.exit();
