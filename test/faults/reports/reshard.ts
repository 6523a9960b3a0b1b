import { setTimeout as sleep } from 'node:timers/promises';
import { slotOf } from '../../../lib/backends/redis/single/cluster-slots.js';
import { RedisCluster } from '../../services/redis-cluster.js';
import { FencedLoad, rowOf } from '../scenarios/fenced-load.js';

/**
 * Moves a slot of a Cluster of six nodes, and kills the primary that has it, again and again while locks in it are taken.
 * Takes the number of rounds.
 */
const rounds = Number(process.argv[2] ?? 5);
/** For so long a slot lies half here and half there. */
const HALF_WAY_MS = 500;

const cluster = await RedisCluster.start();
try {
  const load = new FencedLoad({
    store: { cluster: cluster.addresses },
    keys: ['a', 'b', 'c', 'd', 'e', 'f'],
    processes: 4,
    loops: 2,
    leaseMs: 10_000,
  });
  const slot = slotOf(`{${load.namespace}:brief-0}:lock`);
  for (let round = 0; round < rounds; round += 1) {
    await load.waitForTurns(50);
    const finishMove = await cluster.beginMove(slot);
    await sleep(HALF_WAY_MS);
    await finishMove();
    await load.waitForTurns(50);
    const killed = await cluster.ownerOf(slot);
    await cluster.kill(killed);
    await cluster.waitUntilHealthy();
    await load.waitForTurns(50);
    await cluster.bringBack(killed);
    await cluster.waitUntilHealthy();
  }
  await load.waitForTurns(50);
  const outcome = await load.end();
  console.table({
    'slots moved and primaries killed': rounds,
    ...rowOf(outcome),
    'processes that ended well': outcome.exits.filter((exit) => exit === 0).length,
  });
} finally {
  await cluster.stop();
}
