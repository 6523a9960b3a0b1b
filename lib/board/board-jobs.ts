import { systemClock } from '../core/clock.js';
import { formatReason } from '../core/format.js';
import type { JobInfo } from '../schedule/job-reader.js';
import type { JobRunner } from '../schedule/job-runner.js';
import type { Job } from '../schedule/job.js';
import type { CronRunRecord } from '../schedule/run-record.js';

/** A job as the page shows it. */
export interface BoardJob extends Partial<Omit<JobInfo, 'key' | 'lastRun'>> {
  readonly key: string;
  /** The last runs of all replicas, the newest first. */
  readonly runs: readonly CronRunRecord[];
  /** When it was read, by the clock of this process. */
  readonly readAtMs?: number;
  /** Why it could not be read. The other fields are then what was read last. */
  readonly error?: string;
}

/** Where the page gets its jobs from. */
export interface BoardJobs {
  /** Never rejects. The job with this key is read now, also if it is not its turn. */
  read(firstKey?: string): Promise<readonly BoardJob[]>;
  /** Forgets what was read. */
  forget(): void;
}

const MAX_RUNS = 12;
/** How many histories one poll reads at least. With more jobs, they take turns. */
const JOBS_PER_POLL = 5;
/** Each job is read in one of so many polls at least. */
const POLLS_PER_JOB = 10;

/** The jobs of this process, with what the store has about them. */
export class BoardJobReader implements BoardJobs {
  readonly #runner: JobRunner;
  #known = new Map<string, BoardJob>();

  constructor(runner: JobRunner) {
    this.#runner = runner;
  }

  async read(firstKey?: string): Promise<readonly BoardJob[]> {
    const jobs = new Map(this.#runner.jobs.all.map((job) => [job.key, job]));
    // A reading that ends after `forget()` must not bring back what was forgotten.
    const known = this.#known;
    for (const key of known.keys()) if (!jobs.has(key)) known.delete(key);
    const first = firstKey === undefined ? [] : [firstKey];
    const missing = [...jobs.keys()].filter((key) => !known.has(key));
    const count = Math.max(JOBS_PER_POLL, Math.ceil(jobs.size / POLLS_PER_JOB));
    // A map keeps the order in which its entries were set, so the first are those that were read longest ago.
    const turn = [...new Set([...first, ...missing, ...known.keys()])].slice(0, count);
    await Promise.all(turn.flatMap((key) => jobs.get(key) ?? []).map((job) => this.#readOne(job, known)));
    return [...known.values()].sort((one, other) => (one.key < other.key ? -1 : 1));
  }

  forget(): void {
    this.#known = new Map();
  }

  async #readOne(job: Job, known: Map<string, BoardJob>): Promise<void> {
    const { key } = job;
    const before = known.get(key) ?? { key, runs: [] };
    const read = await this.#report(job).catch((error: unknown) => ({
      ...before,
      error: formatReason(error),
    }));
    known.delete(key);
    known.set(key, read);
  }

  async #report(job: Job): Promise<BoardJob> {
    const { info, runs } = await this.#runner.reader.read(job);
    const { lastRun: _, ...shown } = info;
    return { ...shown, runs: runs.slice(0, MAX_RUNS), readAtMs: systemClock.wallMs() };
  }
}
