import type { Bench, BenchContext, Case } from './bench.js';
import type { Stores } from './contender.js';
import { CONTENDER_CORE, SERVER_CORE } from './pin.js';
import type { Result } from './results.js';
import { WorkerPool } from './worker-pool.js';

/** One case of a bench for one contender. */
export interface Run extends BenchContext {
  readonly bench: Bench;
  readonly oneCase: Case;
  readonly isPinned: boolean;
}

/** Long enough for all that may stand in line. */
const WAIT_MS = 120_000;

/** The processes of one contender in one case, from their start to their end. */
export class ContenderRun {
  readonly #run: Run;
  #workers: WorkerPool<Case, Readonly<Record<string, number>>> | undefined;
  #failure: string | undefined;

  constructor(run: Run) {
    this.#run = run;
  }

  /** Never rejects: what fails, also the stores, is the result of {@link measure}. */
  async open(stores: Promise<Stores>): Promise<void> {
    const { bench, contender, profile, oneCase, isPinned } = this.#run;
    const { name, store } = contender;
    const core = oneCase.sharesCore ? SERVER_CORE : CONTENDER_CORE;
    try {
      const setting = { profile, leaseMs: bench.leaseMs, waitMs: WAIT_MS, stores: await stores };
      this.#workers = await WorkerPool.open(
        { bench: bench.name, contender: name, store, setting },
        {
          processes: oneCase.processes,
          timeoutMs: bench.timeoutMs,
          core: isPinned ? core : undefined,
        },
      );
      await bench.warmUp?.(this.#workers, oneCase);
    } catch (error) {
      this.#failure = messageOf(error);
    }
  }

  async measure(): Promise<Omit<Result, 'turn'>> {
    const { bench, contender, profile, oneCase } = this.#run;
    const { name, store, kind } = contender;
    const line = { bench: bench.name, caseName: oneCase.name, store, contender: name, kind, profile };
    const outcome = await this.#measure();
    return { ...line, ...outcome, uncaughtErrors: [...(this.#workers?.uncaughtErrors ?? [])] };
  }

  async close(): Promise<void> {
    await this.#workers?.close();
  }

  async #measure(): Promise<Pick<Result, 'figures' | 'failure'>> {
    const { bench, oneCase } = this.#run;
    if (!this.#workers || this.#failure !== undefined) return { failure: this.#failure ?? 'not open' };
    try {
      return { figures: await bench.measure(this.#workers, oneCase) };
    } catch (error) {
      return { failure: messageOf(error) };
    }
  }
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
