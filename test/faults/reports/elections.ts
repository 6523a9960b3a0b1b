import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { PERSISTENT } from '../../services/redis-quorum.js';
import { type Store, redisStore } from '../../support/stores.js';
import { FAULTS, FaultyServer, withFaults, pickSome } from '../injection/faulty-server.js';
import { killLeaders, countTermsNotGrowing, countOverlaps } from '../scenarios/kill-leaders.js';

/**
 * A longer run than that of `elections`, which prints what it saw. Takes the number of kills, the lease, and `redlock` for
 * five servers of which any two are killed, frozen or slow meanwhile, in turns.
 */
const [kills, leaseMs] = [Number(process.argv[2] ?? 20), Number(process.argv[3] ?? 3_000)];
const FAULT_MS = 2_000;
const CALM_MS = 1_500;
const isQuorum = process.argv[4] === 'redlock';
const servers = await Promise.all(
  Array.from({ length: isQuorum ? 5 : 0 }, () => FaultyServer.start(PERSISTENT)),
);
const store: Store = isQuorum ? { quorum: { at: servers.map(({ url }) => url) } } : redisStore();
const plan = { store, namespace: randomUUID(), elections: 200, replicas: 4, leaseMs, kills };
const over = new AbortController();
let faults = 0;
const faultsInjected = (async () => {
  while (isQuorum && !over.signal.aborted) {
    await sleep(CALM_MS);
    await withFaults(pickSome(servers, 2), { faults: pickSome(FAULTS, 2), forMs: FAULT_MS });
    faults += 2;
  }
})();
const killed = await killLeaders(plan);
over.abort();
await faultsInjected;
for (const server of servers) await server.stop();
const failOversMs = killed.failOversMs.toSorted((one, other) => one - other);
const percentile = (part: number) => Math.round(failOversMs[Math.ceil(failOversMs.length * part) - 1] ?? NaN);
console.table({
  elections: killed.terms.length,
  'processes killed': kills,
  ...(isQuorum && { 'faults of servers': faults }),
  'leaders killed': failOversMs.length,
  terms: killed.terms.flat().length,
  'lease, ms': leaseMs,
  'led by two at once': countOverlaps(killed),
  'terms that did not grow': countTermsNotGrowing(killed),
  'fail-over, ms, p50': percentile(0.5),
  'fail-over, ms, p99': percentile(0.99),
  'fail-over, ms, longest': percentile(1),
});
