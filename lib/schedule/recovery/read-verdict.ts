import type { Locks } from '../../core/locks.js';
import { type TickState, type TickVerdict, judgeTick } from '../../core/tick.js';
import { buildClaimParams } from '../claim-params.js';
import type { Job } from '../job.js';
import type { Tick } from '../plan/tick-calculator.js';

interface ReadVerdict {
  readonly verdict: TickVerdict;
  readonly state: TickState;
  /** The key of the tick, if it has one of its own. */
  readonly storeKey: string | undefined;
}

/** What a claim of the tick would get now if the job were not paused. `undefined` if the store did not answer. */
export async function readVerdict(job: Job, tick: Tick, locks: Locks): Promise<ReadVerdict | undefined> {
  const { tick: claim, storeKey } = buildClaimParams(job, tick, locks);
  const state = await locks.jobs.tryReadTicks(job.key, storeKey);
  return state && { verdict: judgeTick(claim, { ...state, isPaused: false }), state, storeKey };
}
