import type { Locks } from '../../core/locks.js';
import { type PlannedJob, retriesDeadRuns } from '../job.js';
import { type Tick, createTick } from '../plan/tick-calculator.js';
import { listNewestTicks } from '../plan/newest-ticks.js';
import { type StoredRun, readRunHistory } from '../run-record.js';
import { mayOverlap } from '../tick-keys.js';
import { readVerdict } from './read-verdict.js';

/** How many ticks are read at once. More would delay the renewals of this process. */
const MAX_READS = 8;

/**
 * Finds the ticks with keys of their own whose runs may have died. One job is searched at a time, because a process may have
 * hundreds: together they would flood the store and block the event loop.
 */
export class OwnTickSearch {
  readonly #locks: Locks;
  #previous: Promise<unknown> = Promise.resolve();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /** `nowMs`: by the store's clock. Resolves with `undefined` if the store did not answer. */
  find(job: PlannedJob, nowMs: number): Promise<readonly Tick[] | undefined> {
    if (!retriesDeadRuns(job) || !mayOverlap(job)) return Promise.resolve([]);
    const { clock } = this.#locks;
    const askedAtMs = clock.monotonicMs();
    // Ticks of the time in the line count too: while a job is recovered, nothing else looks for their runs.
    const search = this.#previous.then(() => this.#search(job, nowMs + clock.monotonicMs() - askedAtMs));
    this.#previous = search.catch(() => undefined);
    return search;
  }

  async #search(job: PlannedJob, nowMs: number): Promise<readonly Tick[] | undefined> {
    // Of runs that are long ago or of another schedule, only the history knows.
    const unended = await this.#readUnended(job);
    if (!unended) return undefined;
    const ticks = [...listNewestTicks(job.plan, nowMs), ...unended];
    const found: Tick[] = [];
    for (let from = 0; from < ticks.length; from += MAX_READS) {
      const some = ticks.slice(from, from + MAX_READS);
      const mayHaveDied = await Promise.all(some.map((tick) => this.#mayHaveDied(job, tick)));
      if (mayHaveDied.includes(undefined)) return undefined;
      found.push(...some.filter((_, index) => mayHaveDied[index]));
    }
    return found;
  }

  /** The ticks whose runs have no end in the history. `undefined` if the store did not answer. */
  async #readUnended(job: PlannedJob): Promise<readonly Tick[] | undefined> {
    const history = await readRunHistory(this.#locks.jobs, job.key).catch(() => undefined);
    return history?.filter(isUnended).map(({ record }) => createTick(job.plan, record.tick.getTime()));
  }

  /** Whether a run of the tick died or is in progress. `undefined` if the store did not answer. */
  async #mayHaveDied(job: PlannedJob, tick: Tick): Promise<boolean | undefined> {
    const read = await readVerdict(job, tick, this.#locks);
    if (!read) return undefined;
    const { verdict } = read;
    if (verdict.kind === 'grant') return verdict.attempt > 1;
    return verdict.kind === 'refused' && verdict.retryInMs !== undefined;
  }
}

/** A run that the shutdown has interrupted is retried as if it had died. */
const isUnended = ({ record: { ended, outcome, isManual } }: StoredRun) =>
  !isManual && (ended === null || outcome === 'interrupted');
