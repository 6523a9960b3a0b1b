import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { redlockBackend } from '../lib/backends/redis/index.js';
import { startRedisQuorum, stopAll } from '../test/services/redis-quorum.js';
import { FaultProxy } from '../test/faults/injection/fault-proxy.js';
const servers = await startRedisQuorum(3);
const proxies = await Promise.all(servers.map(({ port }) => FaultProxy.to(port)));
const one = redlockBackend({ clients: proxies.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` })) });
const two = redlockBackend({ clients: servers.map(({ url }) => ({ url })) });
await one.check!(20_000); await two.check!(20_000);
const key = 'lock/job:nightly';
// The second replica is up, and has registered the job long ago. The first one boots.
await two.registerTicks(key, 5_000);
const key2 = 'lock/job:hourly'; // a job that is new in this deploy
for (const k of [key, key2]) {
  for (const p of proxies) p.setConditions({ holdsFrom: (bytes) => bytes.includes('mark ') });
  const registering = one.registerTicks(k, 5_000).then(() => 'registered', (e: Error) => `threw: ${e.message}`);
  await new Promise((r) => setTimeout(r, 150));
  for (const p of proxies) { p.setConditions({ up: 'drop', refuses: true }); p.resetAll(); } // it is killed between the two steps
  const t0 = Date.now();
  for (let i = 0; i < 6; i++) {
    const started = Date.now();
    const r = (await two.execute({ acquire: [{ key: k, holder: randomUUID(), leaseMs: 30_000, instance: 'x', tick: { tickMs: Date.now(), maxEarlyMs: 500, staleAfterMs: 60_000 } }] }, 5_000)).acquire[0]!;
    console.log(k, `tick at ${((started - t0) / 1000).toFixed(1)} s:`, r.kind, r.kind === 'unknown' ? String((r.cause as Error).message) : '', `after ${Date.now() - started} ms`);
    if (r.kind === 'granted') break;
  }
  console.log(await registering);
  for (const p of proxies) p.heal();
}
await one.close(); await two.close(); for (const p of proxies) await p.close(); await stopAll(servers); process.exit(0);
