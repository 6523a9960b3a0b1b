import { setTimeout as sleep } from 'node:timers/promises';
import { askRedis } from '../../services/ask-redis.js';
import { SentinelGroup } from '../../services/redis-sentinel.js';
import { FencedLoad, type LoadOutcome, rowOf } from '../scenarios/fenced-load.js';

/**
 * Lets another server of a Sentinel group take over again and again, without and with `minReplicas`: either the primary is
 * killed, after its replicas have been cut off for a moment, so that what was granted meanwhile is lost; or it is frozen,
 * and goes on when another one has taken over. Takes the number of kills, and that of freezes.
 */
const [kills = 20, freezes = 5] = process.argv.slice(2).map(Number);
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

type FaultScenario = (group: SentinelGroup, load: FencedLoad) => Promise<void>;

const kill: FaultScenario = async (group, load) => {
  await cutReplicasOff(group);
  await sleep(CUT_MS);
  load.holdOn(true);
  await sleep(20);
  const killed = await group.killPrimary();
  await group.waitForFailover(killed);
  await sleep(RENEWED_MS);
  load.holdOn(false);
  await group.bringBack(killed);
  await sleep(FAILOVER_PAUSE_MS);
};

const freeze: FaultScenario = async (group, load) => {
  load.holdOn(true);
  const frozen = await group.primary();
  frozen.kill('SIGSTOP');
  await group.waitForFailover(frozen);
  frozen.kill('SIGCONT');
  await sleep(RENEWED_MS);
  load.holdOn(false);
  await group.waitUntilComplete();
};

interface Plan {
  readonly injectFault: FaultScenario;
  readonly times: number;
  readonly minReplicas?: number;
}

async function report({ injectFault, times, minReplicas }: Plan): Promise<LoadOutcome> {
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
    for (let time = 0; time < times; time += 1) {
      await load.waitForTurns(50);
      await injectFault(group, load);
    }
    await load.waitForTurns(50);
    return await load.end();
  } finally {
    await group.stop();
  }
}

console.table({
  [`${kills} killed`]: rowOf(await report({ injectFault: kill, times: kills })),
  [`${kills} killed, minReplicas: 1`]: rowOf(
    await report({ injectFault: kill, times: kills, minReplicas: 1 }),
  ),
  [`${freezes} frozen`]: rowOf(await report({ injectFault: freeze, times: freezes })),
  [`${freezes} frozen, minReplicas: 1`]: rowOf(
    await report({ injectFault: freeze, times: freezes, minReplicas: 1 }),
  ),
});
