import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../random.js';
import type { StoreClock } from '../store-clock.js';
import type { Nemesis } from './nemesis.js';

const onClock = (
  name: string,
  isInsideGuarantee: boolean,
  turn: (clock: StoreClock, random: Random) => void | Promise<void>,
): Nemesis => ({
  name,
  target: 'store',
  isInsideGuarantee,
  fits: ({ clock }) => clock !== undefined,
  strike: async ({ world: { clock } }, random) => {
    if (clock) await turn(clock, random);
  },
});

/** Leases end early. */
export const clockForward = onClock('store clock set forward', false, (clock, random) =>
  clock.step(random.between(500, 5_000)),
);

/** Leases last longer, which harms nobody. */
export const clockBack: Nemesis = {
  ...onClock('store clock set back', true, (clock, random) => clock.step(-random.between(500, 5_000))),
  harmsTokens: 'sets the clock back',
};

/** Stands still, and is behind from then on. */
export const clockStopped: Nemesis = {
  ...onClock('store clock stopped', true, async (clock, random) => {
    clock.stop();
    await sleep(random.between(200, 2_000));
    clock.goOn({ isBehind: true });
  }),
  harmsTokens: 'sets the clock back',
};

/** Stands still, and then jumps to where it should be. */
export const clockCaughtUp = onClock('store clock stopped, then set right', false, async (clock, random) => {
  clock.stop();
  await sleep(random.between(200, 2_000));
  clock.goOn({ isBehind: false });
});
