import { MemoryBackend, Net, proc, show, sleep } from './common.js';
import { subscribe } from 'node:diagnostics_channel';
const log: string[] = [];
for (const e of ['acquired', 'released', 'lost', 'unavailable']) subscribe('nestjs-distributed-lock:' + e, (m: any) => log.push(`${e}(${m.key}${m.operation ? ', ' + m.operation : ''}, ${m.fencingToken})`));
let down = false;
const net = new Net(new MemoryBackend(), () => { if (down) throw new Error('down'); });
const A = proc(net, 'A');
for (const [key, options] of [['plain', {}], ['pdf', { permits: 3 }], [['a', 'b'], {}]] as any) {
  log.length = 0; down = false;
  const lock = await A.acquire(key, options); down = true;
  await lock.release().catch(() => {});
  console.log(JSON.stringify(key), log.join(' '));
}
process.exit();
