import { setTimeout as sleep } from 'node:timers/promises';
import type { Nemesis } from './nemesis.js';

const FARTHEST_MS = 5_000;

/** The wall clock of one process is set, and set back. */
export const dateShifted: Nemesis = {
  name: 'wall clock of a process set',
  target: 'process',
  isInsideGuarantee: true,
  appliesTo: () => true,
  async inject({ workers }, random) {
    const slot = random.pick(workers.slots);
    const { worker } = slot;
    workers.shiftDate(slot, random.between(-FARTHEST_MS, FARTHEST_MS));
    await sleep(random.between(200, 1_500));
    if (slot.worker === worker) workers.shiftDate(slot, 0);
  },
};
