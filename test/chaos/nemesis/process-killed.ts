import type { Nemesis } from './nemesis.js';

export const processKilled: Nemesis = {
  name: 'process killed',
  target: 'process',
  isInsideGuarantee: true,
  fits: () => true,
  strike: ({ crew }, random) => crew.kill(random.pick(crew.seats)),
};
