import { LockConfigError } from '../core/errors.js';
import type { TickSkipReason } from '../core/events.js';
import { Lease } from '../core/lease.js';
import type { NotGranted } from '../core/grants.js';
import type { Locks } from '../core/locks.js';
import { sleep } from '../core/sleep.js';
import { seatToken } from '../decorators/seat.js';
import type { CronRun } from './cron-run.js';
import type { Plan } from './plan.js';
import { type Tick, TickTracker } from './tick-tracker.js';

export interface Job {
  readonly key: string;
  readonly plan: Plan;
  readonly leaseMs: number | undefined;
}

interface Firing {
  readonly instance: object;
  readonly method: string;
  readonly body: (run: CronRun) => unknown;
  /** What the method was called with. */
  readonly args: readonly unknown[];
}

/** Where the runner of the module with this name sits. */
export const jobRunnerSeat = (name?: string) => seatToken('The runner of @SingletonCron jobs', name);

/** A replica whose clock is ahead may claim a tick so much before its time by the store's clock. */
const MAX_EARLY_RATIO = 0.1;
const MAX_EARLY_MS = 500;
/** Older ticks are not run any more, so that a replica that slept does not catch up with what nobody expects. */
const STALE_AFTER_PERIODS = 10;
const STALE_AFTER_MIN_MS = 60_000;
const STALE_AFTER_MAX_MS = 24 * 60 * 60 * 1_000;

/** Runs guarded jobs: finds the tick a timer fired for, claims it in the store, and runs the body if it is ours. */
export class JobRunner {
  readonly #locks: Locks;
  readonly #jobs = new Map<object, Map<string, { job: Job; tracker: TickTracker }>>();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /** Makes the method of this instance a job. Its ticks count from now. */
  register(instance: object, method: string, job: Job): void {
    const ofInstance = this.#jobs.get(instance) ?? new Map<string, { job: Job; tracker: TickTracker }>();
    this.#jobs.set(instance, ofInstance);
    ofInstance.set(method, { job, tracker: new TickTracker(job.plan, this.#locks.clock.wallMs()) });
  }

  /** Called when a timer fires, in every replica. Rejects with what the body throws, or if the run was lost meanwhile. */
  async fire({ instance, method, body, args }: Firing): Promise<unknown> {
    const found = this.#jobs.get(instance)?.get(method);
    if (!found) throw notAJob(instance, method);
    const { job, tracker } = found;
    // An overriding method that calls super is in the middle of the run already.
    if (this.#locks.isRunning(job.key)) return body(args[0] as CronRun);
    const tick = tracker.fired(this.#locks.clock.wallMs());
    if (!tick) return undefined;
    const claimed = await this.#claim(job, tick);
    if (claimed instanceof Lease) return this.#run(claimed, tick, body);
    this.#locks.events.emit('tick-skipped', { job: job.key, tick: new Date(tick.tickMs), reason: claimed });
    return undefined;
  }

  async #claim({ key, leaseMs }: Job, { tickMs, periodMs }: Tick): Promise<Lease | TickSkipReason> {
    const { clock, stopping } = this.#locks;
    const tick = {
      tickMs,
      maxEarlyMs: Math.round(Math.min(periodMs * MAX_EARLY_RATIO, MAX_EARLY_MS)),
      staleAfterMs: Math.min(
        Math.max(periodMs * STALE_AFTER_PERIODS, STALE_AFTER_MIN_MS),
        STALE_AFTER_MAX_MS,
      ),
    };
    while (!stopping.aborted) {
      const answer = await this.#locks.claimTick(key, { tick, leaseMs });
      if (answer instanceof Lease) return answer;
      const earlyMs = answer.kind === 'refused' && answer.reason === 'early' ? answer.aheadMs : 0;
      if (earlyMs <= 0) return skipReason(answer);
      // Our clock is ahead of the store's. Whoever claims the tick first when its time has come runs it.
      await sleep(clock, earlyMs, stopping);
    }
    return 'shutdown';
  }

  async #run(lease: Lease, { tickMs }: Tick, body: Firing['body']): Promise<unknown> {
    const { fencingToken, signal } = lease;
    const tick = new Date(tickMs);
    this.#locks.events.emit('tick-claimed', { job: lease.key, tick, fencingToken });
    return this.#locks.workUnder(lease, () => body({ tick, attempt: 1, fencingToken, signal }));
  }
}

const notAJob = (instance: object, method: string) =>
  new LockConfigError(
    `${instance.constructor.name}.${method} is not a job of this application: expected an instance that Nest made and ` +
      `that is neither request-scoped nor transient.`,
  );

function skipReason(answer: NotGranted): TickSkipReason {
  if (answer.kind === 'taken') return 'overlap';
  if (answer.kind === 'unknown') return 'unavailable';
  return answer.reason === 'stale' ? 'stale' : 'taken';
}
