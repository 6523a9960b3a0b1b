import { LEASES_MS } from '../workers/worker-messages.js';
import type { Nemesis } from './nemesis.js';

/** As long work that never awaits does it: timers and answers wait. */
export const loopBlocked: Nemesis = {
  name: 'event loop blocked',
  target: 'process',
  isInsideGuarantee: true,
  appliesTo: () => true,
  inject: ({ workers }, random) =>
    workers.block(random.pick(workers.slots), random.pick(LEASES_MS) * random.between(0.2, 2)),
};
