import { sleep } from '../core/clock.js';
import { manualStoreKey } from '../core/store-key.js';
import type { Locks } from '../core/locks.js';
import { mayOverlap } from './tick-keys.js';
import type { Job } from './job.js';
import { readRunHistory } from './run-record.js';

/** How often the store is asked whether a manual run of another process has ended. */
const POLL_MS = 1_000;
/** A claim is refused before its refusal arrives. A manual run that has ended in between may have been the reason. */
const RECENTLY_MS = 5_000;

/** Finds the manual runs of other processes that keep planned ticks from running, and waits for their ends. */
export class ManualRunWatcher {
  readonly #locks: Locks;

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /**
   * Whether a manual run is in progress in any process, or may be, as the store does not answer. With `orRecently`, also whether
   * one has just ended.
   */
  async isRunning(job: Job, { orRecently }: { readonly orRecently: boolean }): Promise<boolean> {
    if (!job.plan || mayOverlap(job)) return false;
    const state = await this.#readTurn(job);
    if (!state) return true;
    if (!state.claimed) return false;
    if (state.heldForMs > 0 || (orRecently && state.nowMs - state.aliveUntilMs < RECENTLY_MS)) return true;
    return (await this.#isRunHeld(job)) !== false;
  }

  /** Resolves when no manual run is in progress, when this process no longer fires the job, or at the shutdown. Never rejects. */
  async whenEnded(job: Job): Promise<void> {
    const { clock, stopping } = this.#locks;
    while (!stopping.aborted && job.isFiring()) {
      const state = await this.#readTurn(job);
      const isTurnHeld = state && state.heldForMs > 0;
      if (state && !isTurnHeld && (await this.#isRunHeld(job)) === false) return;
      await sleep(clock, isTurnHeld ? Math.min(state.heldForMs, POLL_MS) : POLL_MS, stopping);
    }
  }

  /**
   * Whether a manual run has the lock of the job although its turn has ended: its process has died, or could not renew the turn.
   * `undefined` if the store does not answer.
   */
  async #isRunHeld({ key }: Job): Promise<boolean | undefined> {
    const { jobs } = this.#locks;
    try {
      const [run, history] = await Promise.all([jobs.inspectRun(key), readRunHistory(jobs, key)]);
      return history.some(({ record }) => record.isManual && record.fencingToken === run?.fencingToken);
    } catch {
      return undefined;
    }
  }

  /** The lock that a manual run holds from before its claim until after its end. */
  #readTurn({ key }: Job) {
    return this.#locks.jobs.tryReadTicks(key, manualStoreKey(this.#locks.namespace, key));
  }
}
