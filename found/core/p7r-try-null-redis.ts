import { redisBackend } from '../lib/backends/redis/index.js';
import { bareLocks } from '../test/support/bare-locks.js';
import { sleep } from './common.js';
const url = process.env.TEST_REDIS_URL!;
const locks = Array.from({ length: 8 }, (_, i) => bareLocks({ backend: redisBackend({ url }), namespace: 'n' + process.pid, instance: 'p' + i }));
for (const l of locks) await (await l.acquire('warm' + Math.random())).release();
let nulls = 0, calls = 0;
for (let round = 0; round < 300; round++) {
  const got = await Promise.all(locks.map((l) => l.tryAcquire('pdf' + round, { permits: 16 })));
  calls += got.length; nulls += got.filter((g) => g === null).length;
  await Promise.all(got.map((g) => g?.release()));
}
console.log(`Redis: ${nulls} of ${calls} tryAcquire got null with at most 8 of 16 permits in use`);
process.exit();
