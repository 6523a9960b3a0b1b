import { setTimeout as sleep } from 'node:timers/promises';
import type { Nemesis } from './nemesis.js';

/** The server stands still, as in a swapped out or paused machine. Its clock goes on. */
export const storeFrozen: Nemesis = {
  name: 'store frozen',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ servers }) => servers.length > 0,
  async inject({ store }, random) {
    const server = random.pick(store.servers);
    await server.freeze();
    await sleep(random.between(200, store.longestFreezeMs ?? 3_000));
    server.thaw();
  },
};

/** Somebody else keeps the table, or all of the server, for himself. */
export const storeStalled: Nemesis = {
  name: 'store stalled',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ stall }) => stall !== undefined,
  inject: async ({ store }, random) => store.stall?.(random.between(200, 2_500)),
};
