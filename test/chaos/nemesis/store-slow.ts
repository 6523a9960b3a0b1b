import { setTimeout as sleep } from 'node:timers/promises';
import type { Nemesis } from './nemesis.js';

/** The server stands still, as in a swapped out or paused machine. Its clock goes on. */
export const storeFrozen: Nemesis = {
  name: 'store frozen',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ servers }) => servers.length > 0,
  async strike({ world }, random) {
    const server = random.pick(world.servers);
    await server.freeze();
    await sleep(random.between(200, 3_000));
    server.thaw();
  },
};

/** Somebody else keeps the table, or all of the server, for himself. */
export const storeStalled: Nemesis = {
  name: 'store stalled',
  target: 'store',
  isInsideGuarantee: true,
  fits: ({ stall }) => stall !== undefined,
  strike: async ({ world }, random) => world.stall?.(random.between(200, 2_500)),
};
