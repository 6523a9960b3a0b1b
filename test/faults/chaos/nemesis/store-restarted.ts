import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../../support/random.js';
import type { StoreUnderTest } from '../stores/store-under-test.js';
import type { Nemesis } from './nemesis.js';

/** Killed, away for a while, and started again with what it has on its disk. */
export const storeRestarted: Nemesis = {
  name: 'store restarted',
  target: 'store',
  isInsideGuarantee: true,
  appliesTo: ({ servers }) => servers.length > 0,
  inject: ({ store }, random) => restart(store, random),
};

/** The same, and its disk is lost. */
export const storeLosesData: Nemesis = {
  name: 'store restarted without its data',
  target: 'store',
  isInsideGuarantee: false,
  harmsTokens: 'forgets',
  appliesTo: ({ loseData }) => loseData !== undefined,
  inject: ({ store }, random) => restart(store, random, () => store.loseData?.()),
};

/** As somebody does who empties the table. */
export const storeForgets: Nemesis = {
  name: 'store forgets all locks',
  target: 'store',
  isInsideGuarantee: false,
  harmsTokens: 'forgets',
  appliesTo: () => true,
  inject: ({ store }) => store.deleteAll(),
};

async function restart(
  { servers }: StoreUnderTest,
  random: Random,
  meanwhile?: () => unknown,
): Promise<void> {
  const server = random.pick(servers);
  await server.kill();
  await meanwhile?.();
  await sleep(random.between(0, 1_000));
  await server.startAgain();
}
