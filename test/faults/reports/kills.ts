import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { serviceUrl } from '../../support/environment.js';
import { redisStore } from '../../support/stores.js';
import { killContenders, longestGapMs, overtakings } from '../scenarios/kill-contenders.js';

/** A longer run than that of `fair-line`, which prints what it saw. Takes the number of kills. */
const kills = Number(process.argv[2] ?? 45);
const plan = { store: redisStore(), namespace: randomUUID(), key: 'one', contenders: 6, leaseMs: 1_000 };
const held = await killContenders({ ...plan, kills, pauseMs: 1_300 });
const redis = new Redis(serviceUrl('TEST_REDIS_URL'));
const overlaps = held.slice(1).filter((next, index) => next.fromMs <= held[index]!.toMs).length;
console.table({
  kills,
  'times held': held.length,
  seconds: Math.round((held.at(-1)!.toMs - held[0]!.fromMs) / 1_000),
  'held by two at once': overlaps,
  'served before somebody who came earlier': overtakings(held).length,
  'longest time that nobody held it, ms': Math.round(longestGapMs(held)),
  'left in line': await redis.zcard(`{${plan.namespace}:one}:line`),
});
await redis.quit();
