import { Lease } from '../core/lease.js';
import type { NotGranted } from '../core/grants.js';
import type { Locks } from '../core/locks.js';
import { sleep } from '../core/sleep.js';
import type { Job } from './job.js';
import type { Tick } from './tick-tracker.js';
import { wishFor } from './tick-wish.js';

export interface StandByParts {
  readonly locks: Locks;
  readonly mayRun: (job: Job) => Promise<boolean>;
  readonly run: (job: Job, tick: Tick, lease: Lease) => Promise<void>;
}

/** So that many who watch one run do not come back at once. */
const SPREAD_MS = 100;
/** When the store does not answer. */
const PAUSE_MS = 2_000;

/** Watches runs of others: each time their lease would be over it asks for the tick, and gets it if they died. */
export class StandBy {
  readonly #parts: StandByParts;
  readonly #watched = new Map<string, Promise<void>>();

  constructor(parts: StandByParts) {
    this.#parts = parts;
  }

  /** Asks for the tick after so many ms. Settles when there is nothing more to watch. */
  watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const name = `${job.key}@${tick.tickMs}`;
    const present = this.#watched.get(name);
    if (present) return present;
    const watching = this.#watch(job, tick, inMs).finally(() => this.#watched.delete(name));
    this.#watched.set(name, watching);
    return watching;
  }

  async #watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const { locks, run, mayRun } = this.#parts;
    let pauseMs: number | undefined = inMs;
    while (pauseMs !== undefined) {
      await sleep(locks.clock, pauseMs + Math.random() * Math.min(pauseMs, SPREAD_MS), locks.stopping);
      // When the job is started again, it is caught up with.
      if (locks.stopping.aborted || !job.isFiring()) return;
      if (!(await mayRun(job))) {
        pauseMs = PAUSE_MS;
        continue;
      }
      const answer: Lease | NotGranted = await locks.claimTick(job.key, wishFor(job, tick, locks));
      if (answer instanceof Lease) return run(job, tick, answer);
      pauseMs = againInMs(answer);
    }
  }
}

/** `undefined` if the tick is no longer to be had. */
function againInMs(answer: NotGranted): number | undefined {
  if (answer.kind === 'unknown') return PAUSE_MS;
  return answer.kind === 'refused' ? answer.retryInMs : undefined;
}
