import type { Nemesis } from './nemesis.js';

/** A rolling deploy: one closes while the next one starts. */
export const applicationClosed: Nemesis = {
  name: 'application closed',
  target: 'process',
  isInsideGuarantee: true,
  appliesTo: () => true,
  inject: async ({ workers }, random) => workers.replace(random.pick(workers.slots)),
};
