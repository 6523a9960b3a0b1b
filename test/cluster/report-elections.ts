import { randomUUID } from 'node:crypto';
import { redisStore } from '../stores.js';
import { killLeaders, notGrowing, overlaps } from './kill-leaders.js';

/** A longer run than that of `elections`, which prints what it saw. Takes the number of kills and the lease. */
const [kills, leaseMs] = [Number(process.argv[2] ?? 20), Number(process.argv[3] ?? 3_000)];
const plan = { store: redisStore(), namespace: randomUUID(), elections: 200, replicas: 4, leaseMs, kills };
const killed = await killLeaders(plan);
const failOversMs = killed.failOversMs.toSorted((one, other) => one - other);
const percentile = (part: number) => Math.round(failOversMs[Math.ceil(failOversMs.length * part) - 1] ?? NaN);
console.table({
  elections: killed.terms.length,
  'processes killed': kills,
  'leaders killed': failOversMs.length,
  terms: killed.terms.flat().length,
  'lease, ms': leaseMs,
  'led by two at once': overlaps(killed),
  'terms that did not grow': notGrowing(killed),
  'fail-over, ms, p50': percentile(0.5),
  'fail-over, ms, p99': percentile(0.99),
  'fail-over, ms, longest': percentile(1),
});
