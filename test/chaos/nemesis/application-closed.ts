import type { Nemesis } from './nemesis.js';

/** A rolling deploy: one closes while the next one starts. */
export const applicationClosed: Nemesis = {
  name: 'application closed',
  target: 'process',
  isInsideGuarantee: true,
  fits: () => true,
  strike: async ({ crew }, random) => crew.replace(random.pick(crew.seats)),
};
