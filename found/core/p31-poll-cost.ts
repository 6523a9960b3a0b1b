// what one waiting process costs a store without notices (MariaDB, SQLite), plain key against 64 permits
import { MemoryBackend, Net, proc, sleep } from './common.js';
for (const permits of [undefined, 8, 64]) {
  const store = new MemoryBackend(); const A = proc(store, 'A');
  for (let i = 0; i < (permits ?? 1); i++) await A.acquire('p', { permits });
  let requests = 0, batches = 0;
  class Silent extends Net { override onReleased() { return () => {}; } }
  const B = proc(new Silent(store, (r) => { if (r.acquire) { requests += r.acquire.length; batches++; } }), 'B');
  B.acquire('p', { permits, waitMs: 60_000 }).catch(() => {});
  await sleep(2_000); requests = batches = 0; await sleep(5_000);
  console.log(`permits ${permits ?? '-'}: ${requests / 5} acquire requests in ${batches / 5} batches per second while one caller waits`);
}
process.exit();
