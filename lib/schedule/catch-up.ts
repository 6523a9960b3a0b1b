import type { AcquireAnswer } from '../core/backend.js';
import { Lease } from '../core/lease.js';
import { sleep } from '../core/sleep.js';
import { type Job, catchesUp, isRetried } from './job.js';
import type { Plan } from './plan.js';
import type { StandBy, StandByParts } from './stand-by.js';
import { tickAt } from './tick-tracker.js';
import { lookFor, otherPlaceProbe, rememberedTicks } from './tick-wish.js';

interface CatchUpParts extends StandByParts {
  readonly standBy: StandBy;
}

type Planned = Job & { readonly plan: Plan };

/** Between two looks at a store that does not answer. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/**
 * Looks, when a process begins to fire a job and when the store answers again, for what nobody could fire: a run that died while no
 * other replica watched it, and a tick over which all replicas were down.
 */
export class CatchUp {
  readonly #parts: CatchUpParts;
  readonly #looking = new Set<Job>();

  constructor(parts: CatchUpParts) {
    this.#parts = parts;
  }

  /** Nobody waits for that, and it never rejects. */
  look(job: Job): void {
    if (!(catchesUp(job) || isRetried(job)) || this.#looking.has(job)) return;
    this.#looking.add(job);
    void this.#parts.context
      .runInAsyncScope(() => this.#look(job))
      .catch((error: unknown) => job.onError(error))
      .finally(() => this.#looking.delete(job));
  }

  async #look(job: Job): Promise<void> {
    if (!isPlanned(job)) return;
    const { clock, stopping } = this.#parts.locks;
    let pauseMs = FIRST_PAUSE_MS;
    // This looks again when the process comes to lead, or to fire the job.
    while (!stopping.aborted && job.isFiring() && (await this.#parts.mayRun(job))) {
      if (await this.#isSettled(job)) return;
      await sleep(clock, pauseMs * (0.5 + Math.random() / 2), stopping);
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    }
  }

  /** Does what there is to do; `false` if the store did not answer or more may have to be done. */
  async #isSettled(job: Planned): Promise<boolean> {
    const { locks, standBy } = this.#parts;
    const wish = lookFor(job, locks);
    const { tick } = wish;
    const answer = await locks.claimTick(job.key, wish);
    if (answer instanceof Lease || answer.kind !== 'refused') return false;
    const nowMs = tick.tickMs - answer.aheadMs;
    if (isRetried(job)) {
      // Each has a key of its own, so one answer does not tell of all.
      for (const each of rememberedTicks(job, nowMs, locks) ?? []) void standBy.watch(job, each, 0);
    }
    if (answer.unfinishedMs !== undefined) {
      await standBy.watch(job, tickAt(job.plan, answer.unfinishedMs), 0);
      return false;
    }
    if (answer.reason === 'registered') return true;
    return catchesUp(job) ? this.#runMissed(job, nowMs) : this.#watchPresent(job, wish.storeKey);
  }

  /** Claims the newest tick that is past by the store's clock: if it was run, or somebody else is quicker, all is well. */
  async #runMissed(job: Planned, nowMs: number): Promise<boolean> {
    const tickMs = job.plan.latest(nowMs);
    if (tickMs === undefined) return true;
    const tick = tickAt(job.plan, tickMs);
    const { locks, enter } = this.#parts;
    const other = await locks.claimTick(job.key, otherPlaceProbe(job, tick, locks));
    if (other instanceof Lease || other.kind !== 'refused') return false;
    if (other.reason === 'claimed') return true;
    const answer = await enter(job, tick, { isMissed: true });
    return answer === undefined || answer instanceof Lease || isAnswered(answer);
  }

  /** A run that is on now may have begun before this process did, so that no timer here knows of it. */
  async #watchPresent(job: Planned, storeKey: string | undefined): Promise<boolean> {
    const { locks } = this.#parts;
    try {
      for (let first: bigint | undefined; !locks.stopping.aborted;) {
        const present = await locks.runOf(job.key, storeKey);
        first ??= present?.fencingToken;
        if (!present) return first === undefined;
        if (present.fencingToken !== first) return true;
        await sleep(locks.clock, present.remainingMs, locks.stopping);
      }
      return true;
    } catch {
      return false; // The store did not answer, of which others tell.
    }
  }
}

const isPlanned = (job: Job): job is Planned => job.plan !== undefined;

const isAnswered = ({ kind }: AcquireAnswer) => kind !== 'unknown';
