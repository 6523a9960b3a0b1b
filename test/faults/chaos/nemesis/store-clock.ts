import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../../support/random.js';
import type { StoreClock } from '../../injection/store-clock.js';
import type { Nemesis } from './nemesis.js';

const clockNemesis = (
  name: string,
  isInsideGuarantee: boolean,
  change: (clock: StoreClock, random: Random) => void | Promise<void>,
): Nemesis => ({
  name,
  target: 'store',
  isInsideGuarantee,
  appliesTo: ({ clock }) => clock !== undefined,
  inject: async ({ store: { clock } }, random) => {
    if (clock) await change(clock, random);
  },
});

/** Leases end early. */
export const clockForward = clockNemesis('store clock set forward', false, (clock, random) =>
  clock.step(random.between(500, 5_000)),
);

/** Leases last longer, which harms nobody. */
export const clockBack: Nemesis = {
  ...clockNemesis('store clock set back', true, (clock, random) => clock.step(-random.between(500, 5_000))),
  harmsTokens: 'sets the clock back',
};

/** Stands still, and is behind from then on. */
export const clockStopped: Nemesis = {
  ...clockNemesis('store clock stopped', true, async (clock, random) => {
    clock.stop();
    await sleep(random.between(200, 2_000));
    clock.resume({ isBehind: true });
  }),
  harmsTokens: 'sets the clock back',
};

/** Stands still, and then jumps to where it should be. */
export const clockCaughtUp = clockNemesis(
  'store clock stopped, then set right',
  false,
  async (clock, random) => {
    clock.stop();
    await sleep(random.between(200, 2_000));
    clock.resume({ isBehind: false });
  },
);
