import type { AsyncResource } from 'node:async_hooks';
import { Lease } from '../core/lease.js';
import type { NotGranted } from '../core/grants.js';
import type { Locks } from '../core/locks.js';
import { sleep } from '../core/sleep.js';
import type { Job } from './job.js';
import type { Tick } from './tick-tracker.js';
import { deathProbe, lookAt } from './tick-wish.js';

export interface EnterOptions {
  readonly isMissed?: boolean;
}

/** Enters a job for a tick. Answers what became of the claim; `undefined` if its method was not called. */
export type Enter = (job: Job, tick: Tick, options?: EnterOptions) => Promise<Lease | NotGranted | undefined>;

export interface StandByParts {
  readonly locks: Locks;
  /** In which nobody's lock is held. */
  readonly context: AsyncResource;
  readonly mayRun: (job: Job) => Promise<boolean>;
  readonly enter: Enter;
}

/** So that many who watch one run do not come back at once. */
const SPREAD_MS = 100;
/** When the store does not answer. */
const PAUSE_MS = 2_000;
/** Between two times that the job is entered, if its method is not called. */
const LONGEST_PAUSE_MS = 15_000;

/** Watches runs of others: each time their lease would be over it asks for the tick, and gets it if they died. */
export class StandBy {
  readonly #parts: StandByParts;
  /** By job, since a key that is guarded again is another job: what watched for the earlier one ends with it. */
  readonly #watched = new WeakMap<Job, Map<number, Promise<void>>>();

  constructor(parts: StandByParts) {
    this.#parts = parts;
  }

  /** Asks for the tick after so many ms. Settles when there is nothing more to watch; never rejects. */
  watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const ofJob = this.#watched.get(job) ?? new Map<number, Promise<void>>();
    this.#watched.set(job, ofJob);
    const present = ofJob.get(tick.tickMs);
    if (present) return present;
    const watching = this.#parts.context
      .runInAsyncScope(() => this.#watch(job, tick, inMs))
      .catch((error: unknown) => job.onError(error))
      .finally(() => ofJob.delete(tick.tickMs));
    ofJob.set(tick.tickMs, watching);
    return watching;
  }

  async #watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const { locks, mayRun } = this.#parts;
    let notCalledMs = PAUSE_MS / 2;
    let pauseMs: number | undefined = inMs;
    while (pauseMs !== undefined) {
      await sleep(locks.clock, pauseMs + Math.random() * Math.min(pauseMs, SPREAD_MS), locks.stopping);
      // When the job is started again, it is caught up with.
      if (locks.stopping.aborted || !job.isFiring()) return;
      if (!(await mayRun(job))) {
        pauseMs = PAUSE_MS;
        continue;
      }
      const answer = await this.#tryToRun(job, tick);
      if (answer === 'not-called') notCalledMs = Math.min(notCalledMs * 2, LONGEST_PAUSE_MS);
      pauseMs = answer === 'not-called' ? notCalledMs : againInMs(answer);
    }
  }

  /** What stands around the method is not entered for a run that goes on. */
  async #tryToRun(job: Job, tick: Tick): Promise<Lease | NotGranted | 'not-called'> {
    const { locks, enter } = this.#parts;
    const probe = await locks.claimTick(job.key, deathProbe(job, tick, locks));
    if (probe instanceof Lease || probe.kind !== 'refused' || probe.reason !== 'stale') return probe;
    const look = lookAt(job, tick, locks);
    const found = await locks.claimTick(job.key, look.wish);
    if (found instanceof Lease || found.kind !== 'refused' || found.unfinishedMs !== look.tickMs)
      return found;
    return (await enter(job, tick)) ?? 'not-called';
  }
}

/** `undefined` if the tick is no longer to be had. */
function againInMs(answer: Lease | NotGranted): number | undefined {
  if (answer instanceof Lease) return undefined;
  if (answer.kind === 'unknown') return PAUSE_MS;
  return answer.kind === 'refused' ? answer.retryInMs : undefined;
}
