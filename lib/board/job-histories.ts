import { formatReason } from '../core/format.js';
import type { CronRuns } from '../schedule/cron-runs.js';
import type { JobRunner } from '../schedule/job-runner.js';
import type { CronRunRecord } from '../schedule/run-record.js';

/** A job as the page shows it. */
export interface BoardJob {
  readonly key: string;
  readonly nextTick: Date | null;
  /** Its ticks are skipped until somebody resumes it. */
  readonly isPaused: boolean;
  /** The last runs of all replicas, the newest first. */
  readonly runs: readonly CronRunRecord[];
  /** Why its history could not be read. The other fields are then what was read last. */
  readonly error?: string;
}

/** Where the page gets its jobs from. */
export interface BoardJobs {
  /** Never rejects. */
  read(): Promise<readonly BoardJob[]>;
}

const MAX_RUNS = 12;
/** How many histories one poll reads. With more jobs, they take turns. */
const JOBS_PER_POLL = 5;

/** The jobs of this process, with the history that all replicas have written. */
export class JobHistories implements BoardJobs {
  readonly #runner: JobRunner;
  readonly #cronRuns: CronRuns;
  readonly #known = new Map<string, BoardJob>();

  constructor(runner: JobRunner, cronRuns: CronRuns) {
    this.#runner = runner;
    this.#cronRuns = cronRuns;
  }

  async read(): Promise<readonly BoardJob[]> {
    const keys = [...new Set(this.#runner.jobs.keys)];
    for (const key of this.#known.keys()) if (!keys.includes(key)) this.#known.delete(key);
    const missing = keys.filter((key) => !this.#known.has(key));
    // A map keeps the order in which its entries were set, so the first are those that were read longest ago.
    const turn = [...missing, ...this.#known.keys()].slice(0, JOBS_PER_POLL);
    await Promise.all(turn.map((key) => this.#readOne(key)));
    return [...this.#known.values()].sort((one, other) => (one.key < other.key ? -1 : 1));
  }

  async #readOne(key: string): Promise<void> {
    const known = this.#known.get(key) ?? { key, nextTick: null, isPaused: false, runs: [] };
    const job = await this.#history(key).catch((error: unknown) => ({
      ...known,
      error: formatReason(error),
    }));
    this.#known.delete(key);
    this.#known.set(key, job);
  }

  async #history(key: string): Promise<BoardJob> {
    const { runs, nextTick, isPaused } = await this.#cronRuns.history(key);
    return { key, nextTick, isPaused, runs: runs.slice(0, MAX_RUNS) };
  }
}
