import { setTimeout as sleep } from 'node:timers/promises';
import { askRedis } from '../services/ask-redis.js';
import { SentinelGroup } from '../services/redis-sentinel.js';
import { FencedLoad, type LoadOutcome } from './fenced-load.js';

/**
 * Kills the primary of a Sentinel group again and again, after its replicas have been cut off for a moment, so that what
 * was granted meanwhile is lost; without and with `minReplicas`. Takes the number of kills.
 */
const kills = Number(process.argv[2] ?? 20);
const KEYS = ['a', 'b', 'c', 'd', 'e', 'f'];
const LEASE_MS = 10_000;
/** In this time holders renew, and learn of a loss. */
const RENEWED_MS = LEASE_MS / 2;
const CUT_MS = 250;
/** Sentinel begins no failover sooner than that after the last one. */
const FAILOVER_PAUSE_MS = 3_500;

async function cutReplicasOff(group: SentinelGroup): Promise<void> {
  for (const { url } of await group.replicas()) {
    await askRedis(url, (replica) => replica.replicaof('127.0.0.1', 1));
  }
}

async function killPrimaries(minReplicas: number | undefined): Promise<LoadOutcome> {
  const group = await SentinelGroup.start();
  try {
    const sentinels = { name: group.name, at: group.sentinels, ...(minReplicas && { minReplicas }) };
    const load = new FencedLoad({
      store: { sentinels },
      keys: KEYS,
      processes: 4,
      loops: 2,
      leaseMs: LEASE_MS,
    });
    for (let kill = 0; kill < kills; kill += 1) {
      await load.goesOn(50);
      await cutReplicasOff(group);
      await sleep(CUT_MS);
      load.holdOn(true);
      await sleep(20);
      const killed = await group.killPrimary();
      await group.failedOver(killed);
      await sleep(RENEWED_MS);
      load.holdOn(false);
      await group.bringBack(killed);
      await sleep(FAILOVER_PAUSE_MS);
    }
    await load.goesOn(50);
    return await load.end();
  } finally {
    await group.stop();
  }
}

const row = ({ longestPauseMs, ...outcome }: LoadOutcome) => ({
  kills,
  acquisitions: outcome.acquisitions,
  'double grants': outcome.doubleGrants,
  'writes of an older holder refused': outcome.olderRefused,
  'writes of an older holder accepted': outcome.olderAccepted,
  'tokens that did not grow': outcome.tokensThatDidNotGrow,
  'longest time without service, ms': Math.round(longestPauseMs),
  'holders told': outcome.holdersTold,
});

console.table({
  'without minReplicas': row(await killPrimaries(undefined)),
  'minReplicas: 1': row(await killPrimaries(1)),
});
