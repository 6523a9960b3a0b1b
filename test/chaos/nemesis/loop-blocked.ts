import { LEASES_MS } from '../task.js';
import type { Nemesis } from './nemesis.js';

/** As long work that never awaits does it: timers and answers wait. */
export const loopBlocked: Nemesis = {
  name: 'event loop blocked',
  target: 'process',
  isInsideGuarantee: true,
  fits: () => true,
  strike: ({ crew }, random) =>
    crew.block(random.pick(crew.seats), random.pick(LEASES_MS) * random.between(0.2, 2)),
};
