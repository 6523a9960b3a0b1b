import type { Nemesis } from './nemesis.js';

export const processKilled: Nemesis = {
  name: 'process killed',
  target: 'process',
  isInsideGuarantee: true,
  appliesTo: () => true,
  inject: ({ workers }, random) => workers.kill(random.pick(workers.slots)),
};
