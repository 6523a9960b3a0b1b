import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../random.js';
import type { World } from '../worlds/world.js';
import type { Nemesis } from './nemesis.js';

/** Killed, away for a while, and started again with what it has on its disk. */
export const storeRestarted: Nemesis = {
  name: 'store restarted',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ servers }) => servers.length > 0,
  strike: ({ world }, random) => restart(world, random),
};

/** The same, and its disk is lost. */
export const storeLosesData: Nemesis = {
  name: 'store restarted without its data',
  target: 'store',
  isInsideGuarantee: false,
  harmsTokens: 'forgets',
  fits: ({ loseData }) => loseData !== undefined,
  strike: ({ world }, random) => restart(world, random, () => world.loseData?.()),
};

/** As somebody does who empties the table. */
export const storeForgets: Nemesis = {
  name: 'store forgets all locks',
  target: 'store',
  isInsideGuarantee: false,
  harmsTokens: 'forgets',
  fits: () => true,
  strike: ({ world }) => world.forget(),
};

async function restart({ servers }: World, random: Random, meanwhile?: () => unknown): Promise<void> {
  const server = random.pick(servers);
  await server.kill();
  await meanwhile?.();
  await sleep(random.between(0, 1_000));
  await server.startAgain();
}
