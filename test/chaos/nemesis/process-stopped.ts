import { LEASES_MS } from '../task.js';
import type { Nemesis } from './nemesis.js';

/** By SIGSTOP, so long that a lease ends meanwhile. */
export const processStopped: Nemesis = {
  name: 'process stopped',
  target: 'process',
  isInsideGuarantee: true,
  fits: () => true,
  strike: ({ crew }, random) =>
    crew.stop(random.pick(crew.seats), random.pick(LEASES_MS) * random.between(1.2, 2)),
};
