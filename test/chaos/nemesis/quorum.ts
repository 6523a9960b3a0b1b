import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../random.js';
import type { Server } from '../server.js';
import type { Nemesis } from './nemesis.js';

const [SHORTEST_MS, LONGEST_MS] = [300, 3_000];
/** How long a slow server stands still and goes on in turns. */
const [STANDS_MS, GOES_MS] = [100, 20];

const minority = ({ length }: readonly Server[]) => Math.ceil(length / 2) - 1;

/** What is done to a server for so long. */
type Harm = (server: Server, forMs: number) => Promise<void>;

const away: Harm = async (server, forMs) => {
  await server.kill();
  await sleep(forMs);
  await server.startAgain();
};

const frozen: Harm = async (server, forMs) => {
  await server.freeze();
  await sleep(forMs);
  server.thaw();
};

const slow: Harm = async (server, forMs) => {
  const overAtMs = performance.now() + forMs;
  while (performance.now() < overAtMs) {
    await frozen(server, STANDS_MS);
    await sleep(GOES_MS);
  }
};

/** A nemesis of some of several servers at once, each harmed in one of these ways. */
const onSome = (
  name: string,
  count: (servers: readonly Server[], random: Random) => number,
  harms: readonly Harm[],
): Nemesis => ({
  name,
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ servers }) => servers.length > 1,
  async strike({ world: { servers } }, random) {
    const rest = [...servers];
    const struck = Array.from({ length: count(servers, random) }, () =>
      rest
        .splice(random.whole(0, rest.length - 1), 1)
        .map((server) => ({ server, harm: random.pick(harms) })),
    ).flat();
    const forMs = random.between(SHORTEST_MS, LONGEST_MS);
    await Promise.all(struck.map(({ server, harm }) => harm(server, forMs)));
  },
});

const upToMinority = (servers: readonly Server[], random: Random) => random.whole(1, minority(servers));
const oneTooMany = (servers: readonly Server[]) => minority(servers) + 1;

export const minorityKilled = onSome('minority of servers killed', upToMinority, [away]);
export const minorityFrozen = onSome('minority of servers frozen', upToMinority, [frozen]);
export const minoritySlow = onSome('minority of servers slow', upToMinority, [slow]);
/** Whoever needs a majority needs all the others. */
export const minorityHarmed = onSome('minority of servers harmed in several ways', minority, [
  away,
  frozen,
  slow,
]);
/** Nothing is granted meanwhile, and nothing is granted twice when they are back. */
export const majorityKilled = onSome('majority of servers killed', oneTooMany, [away]);
export const majorityFrozen = onSome('majority of servers frozen', oneTooMany, [frozen]);

/** One after the other, each as soon as the one before is back. */
export const serversRestartedInTurn: Nemesis = {
  name: 'servers restarted one after the other',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ servers }) => servers.length > 1,
  async strike({ world: { servers } }, random) {
    for (const server of servers) await away(server, random.between(0, 300));
  },
};
