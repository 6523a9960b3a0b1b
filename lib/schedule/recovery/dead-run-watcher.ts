import type { AsyncResource } from 'node:async_hooks';
import { Lease } from '../../core/leases/lease.js';
import type { NotGranted } from '../../core/requests/acquirer.js';
import type { Locks } from '../../core/locks.js';
import { sleep } from '../../core/sleep.js';
import type { Job } from '../job.js';
import type { Tick } from '../plan/tick-calculator.js';
import { buildDeadRunProbe, buildTakeoverProbe } from '../tick-claim.js';

export interface InvokeOptions {
  readonly isMissed?: boolean;
}

/** Enters a job for a tick. Answers what became of the claim; `undefined` if its method was not called. */
export type InvokeJob = (
  job: Job,
  tick: Tick,
  options?: InvokeOptions,
) => Promise<Lease | NotGranted | undefined>;

export interface RecoveryParts {
  readonly locks: Locks;
  /** In which nobody's lock is held. */
  readonly context: AsyncResource;
  readonly mayRun: (job: Job) => Promise<boolean>;
  readonly invoke: InvokeJob;
}

/** So that many who watch one run do not come back at once. */
const MAX_JITTER_MS = 100;
/** When the store does not answer. */
const RETRY_PAUSE_MS = 2_000;
/** Between two times that the job is entered, if its method is not called. */
const MAX_PAUSE_MS = 15_000;

/** Watches runs of others: each time their lease would be over it asks for the tick, and gets it if they died. */
export class DeadRunWatcher {
  readonly #parts: RecoveryParts;
  /** By job, since a key that is guarded again is another job: what watched for the earlier one ends with it. */
  readonly #watched = new WeakMap<Job, Map<number, Promise<void>>>();

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
  }

  /** Asks for the tick after so many ms. Settles when there is nothing more to watch; never rejects. */
  watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const watchedTicks = this.#watched.get(job) ?? new Map<number, Promise<void>>();
    this.#watched.set(job, watchedTicks);
    const existing = watchedTicks.get(tick.tickMs);
    if (existing) return existing;
    const watching = this.#parts.context
      .runInAsyncScope(() => this.#watch(job, tick, inMs))
      .catch((error: unknown) => job.onError(error))
      .finally(() => watchedTicks.delete(tick.tickMs));
    watchedTicks.set(tick.tickMs, watching);
    return watching;
  }

  async #watch(job: Job, tick: Tick, inMs: number): Promise<void> {
    const { locks, mayRun } = this.#parts;
    let notInvokedPauseMs = RETRY_PAUSE_MS / 2;
    let pauseMs: number | undefined = inMs;
    while (pauseMs !== undefined) {
      await sleep(locks.clock, pauseMs + Math.random() * Math.min(pauseMs, MAX_JITTER_MS), locks.stopping);
      // When the job is started again, it is caught up with.
      if (locks.stopping.aborted || !job.isFiring()) return;
      if (!(await mayRun(job))) {
        pauseMs = RETRY_PAUSE_MS;
        continue;
      }
      const result = await this.#tryToTakeOver(job, tick);
      if (result === 'not-called') notInvokedPauseMs = Math.min(notInvokedPauseMs * 2, MAX_PAUSE_MS);
      pauseMs = result === 'not-called' ? notInvokedPauseMs : getRetryDelayMs(result);
    }
  }

  /** What stands around the method is not entered for a run that goes on. */
  async #tryToTakeOver(job: Job, tick: Tick): Promise<Lease | NotGranted | 'not-called'> {
    const { locks, invoke } = this.#parts;
    const probeResult = await locks.claimTick(job.key, buildDeadRunProbe(job, tick, locks));
    if (probeResult instanceof Lease || probeResult.kind !== 'refused' || probeResult.reason !== 'stale')
      return probeResult;
    const takeoverProbe = buildTakeoverProbe(job, tick, locks);
    const takeoverResult = await locks.claimTick(job.key, takeoverProbe.params);
    if (
      takeoverResult instanceof Lease ||
      takeoverResult.kind !== 'refused' ||
      takeoverResult.unfinishedMs !== takeoverProbe.tickMs
    )
      return takeoverResult;
    return (await invoke(job, tick)) ?? 'not-called';
  }
}

/** `undefined` if the tick is no longer to be had. */
function getRetryDelayMs(result: Lease | NotGranted): number | undefined {
  if (result instanceof Lease) return undefined;
  if (result.kind === 'unknown') return RETRY_PAUSE_MS;
  return result.kind === 'refused' ? result.retryInMs : undefined;
}
