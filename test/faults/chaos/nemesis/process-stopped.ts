import { LEASES_MS } from '../workers/worker-messages.js';
import type { Nemesis } from './nemesis.js';

/** By SIGSTOP, so long that a lease ends meanwhile. */
export const processStopped: Nemesis = {
  name: 'process stopped',
  target: 'process',
  isInsideGuarantee: true,
  appliesTo: () => true,
  inject: ({ workers }, random) =>
    workers.stop(random.pick(workers.slots), random.pick(LEASES_MS) * random.between(1.2, 2)),
};
