import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { redlockBackend } from '../lib/backends/redis/index.js';
import { startRedisQuorum, stopAll } from '../test/services/redis-quorum.js';
const servers = await startRedisQuorum(3);
const [a, b, c] = servers.map(({ url }) => url) as [string, string, string];
console.log('servers', a, b, c);
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
const at = (url: string, db: number) => ({ url: `${url.replace(/\/$/, '')}/${db}` });
const one = redlockBackend({ clients: [at(a, 0), at(c, 0), at(b, 0)], maxLeaseMs: 5_000 });
const two = redlockBackend({ clients: [at(b, 0), at(c, 1), at(a, 0)], maxLeaseMs: 5_000 });
await one.check!(20_000); await two.check!(20_000);
let both = 0;
for (let round = 0; round < 10; round++) {
  const key = randomUUID();
  const reqs = [0, 1].map(() => ({ key, holder: randomUUID(), leaseMs: 3_000, instance: 'x' }));
  const [r1, r2] = await Promise.all([one.execute({ acquire: [reqs[0]!] }, 2_000), two.execute({ acquire: [reqs[1]!] }, 2_000)]);
  const kinds = [r1.acquire[0]!.kind, r2.acquire[0]!.kind];
  if (kinds.every((k) => k === 'granted')) {
    both += 1;
    const renewals: string[] = [];
    for (let i = 0; i < 4; i++) {
      await sleep(1_000);
      const [n1, n2] = await Promise.all([one.execute({ renew: [{ ...reqs[0]!, leaseMs: 3_000 }] }, 2_000), two.execute({ renew: [{ ...reqs[1]!, leaseMs: 3_000 }] }, 2_000)]);
      renewals.push(`${n1.renew[0]!.kind}+${n2.renew[0]!.kind}`);
    }
    console.log('round', round, kinds.join('+'), 'tokens', r1.acquire[0], r2.acquire[0], 'renewals', renewals.join(' '));
    if (both === 2) break;
  } else console.log('round', round, kinds.join('+'));
}
console.log('keys held by two at once:', both);
await one.close(); await two.close(); await stopAll(servers); process.exit(0);
