import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../../support/random.js';
import type { RestartableServer } from '../../injection/restartable-server.js';
import type { Nemesis } from './nemesis.js';

const [SHORTEST_MS, LONGEST_MS] = [300, 3_000];
/** How long a slow server stands still and goes on in turns. */
const [FROZEN_MS, RUNNING_MS] = [100, 20];

const minority = ({ length }: readonly RestartableServer[]) => Math.ceil(length / 2) - 1;

/** What is done to a server for so long. */
type ServerFault = (server: RestartableServer, forMs: number) => Promise<void>;

const killed: ServerFault = async (server, forMs) => {
  await server.kill();
  await sleep(forMs);
  await server.startAgain();
};

const frozen: ServerFault = async (server, forMs) => {
  await server.freeze();
  await sleep(forMs);
  server.thaw();
};

const slow: ServerFault = async (server, forMs) => {
  const overAtMs = performance.now() + forMs;
  while (performance.now() < overAtMs) {
    await frozen(server, FROZEN_MS);
    await sleep(RUNNING_MS);
  }
};

/** A nemesis of some of several servers at once, each harmed in one of these ways. */
const quorumNemesis = (
  name: string,
  count: (servers: readonly RestartableServer[], random: Random) => number,
  faults: readonly ServerFault[],
): Nemesis => ({
  name,
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ servers }) => servers.length > 1,
  async inject({ store: { servers, longestFreezeMs = LONGEST_MS } }, random) {
    const rest = [...servers];
    const affected = Array.from({ length: count(servers, random) }, () =>
      rest
        .splice(random.whole(0, rest.length - 1), 1)
        .map((server) => ({ server, fault: random.pick(faults) })),
    ).flat();
    const isFrozen = affected.some(({ fault }) => fault !== killed);
    const forMs = random.between(SHORTEST_MS, isFrozen ? longestFreezeMs : LONGEST_MS);
    await Promise.all(affected.map(({ server, fault }) => fault(server, forMs)));
  },
});

const upToMinority = (servers: readonly RestartableServer[], random: Random) =>
  random.whole(1, minority(servers));
const oneTooMany = (servers: readonly RestartableServer[]) => minority(servers) + 1;

export const minorityKilled = quorumNemesis('minority of servers killed', upToMinority, [killed]);
export const minorityFrozen = quorumNemesis('minority of servers frozen', upToMinority, [frozen]);
export const minoritySlow = quorumNemesis('minority of servers slow', upToMinority, [slow]);
/** Whoever needs a majority needs all the others. */
export const minorityHarmed = quorumNemesis('minority of servers harmed in several ways', minority, [
  killed,
  frozen,
  slow,
]);
/** Nothing is granted meanwhile, and nothing is granted twice when they are back. */
export const majorityKilled = quorumNemesis('majority of servers killed', oneTooMany, [killed]);
export const majorityFrozen = quorumNemesis('majority of servers frozen', oneTooMany, [frozen]);

/** One after the other, each as soon as the one before is back. */
export const serversRestartedInTurn: Nemesis = {
  name: 'servers restarted one after the other',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ servers }) => servers.length > 1,
  async inject({ store: { servers } }, random) {
    for (const server of servers) await killed(server, random.between(0, 300));
  },
};
