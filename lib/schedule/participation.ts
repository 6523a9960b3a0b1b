import { Logger } from '@nestjs/common';
import { systemClock } from '../core/clock.js';
import type { CatchUp } from './catch-up.js';
import { type JobRef, keptRef } from './job-ref.js';
import { type Job, catchesUp, isRetried } from './job.js';

/** The elections in which this process takes part. */
export interface LeadershipByName {
  /** Joins, and leaves if nobody else has joined when what this returns is called. */
  joinForJob(name: string, handler: ElectedHandler): () => void;
  /** Somebody may have joined while no job of it was fired here. */
  standIfHeld(name: string): void;
  standOnceFiring(name: string, isFiring: () => boolean): void;
  presentTerm(name: string): object | undefined;
  confirmedTerm(name: string): Promise<object | undefined>;
}

interface ElectedHandler {
  readonly place: string;
  run(): void;
  isFiring(): boolean;
}

interface ParticipationParts {
  readonly elections: LeadershipByName;
  readonly catchUp: CatchUp;
  readonly stopping: AbortSignal;
}

/** The scheduler tells nobody when a job is started, stopped or deleted, so it is looked at this often. */
const LOOK_EACH_MS = 1_000;

/** Takes part in jobs while the scheduler of this process fires them: in their elections and in what nobody has fired. */
export class Participation {
  readonly #parts: ParticipationParts;
  /** Those of decorated methods for which it matters. */
  readonly #watched = new Set<Job>();
  /** How to leave again. Jobs that are made at run time are not kept by this. */
  readonly #present = new WeakMap<Job, () => void>();
  /** Those that run nowhere, as this process leads without firing them. */
  readonly #warned = new WeakSet<Job>();
  readonly #logger = new Logger('DistributedLockModule');
  #isStarted = false;

  constructor(parts: ParticipationParts) {
    this.#parts = parts;
  }

  /** Takes part from {@link start} on, whenever the job is fired. */
  watch(job: Job): void {
    const { leader } = job.options;
    if (leader === undefined && !catchesUp(job) && !isRetried(job)) return;
    this.#watched.add(job);
    if (leader !== undefined) this.#parts.elections.standOnceFiring(leader, () => job.isFiring());
  }

  /** Looks for what happened while this process was not there; from now on it looks at the scheduler again and again. */
  start(madeAtRunTime: Iterable<Job>): void {
    this.#isStarted = true;
    for (const job of madeAtRunTime) this.#parts.catchUp.look(job);
    this.#lookAround();
  }

  #lookAround(): void {
    const { stopping } = this.#parts;
    if (this.#watched.size === 0 || stopping.aborted) return;
    for (const job of this.#watched) {
      if (job.isFiring()) {
        this.begin(job);
        if (job.options.leader !== undefined) this.#parts.elections.standIfHeld(job.options.leader);
        this.#warned.delete(job);
      } else {
        this.#present.get(job)?.();
        this.#warnIfLeader(job);
      }
    }
    // By real time, as the scheduler goes by it.
    const timer = systemClock.after(LOOK_EACH_MS, () => {
      stopping.removeEventListener('abort', cancel);
      this.#lookAround();
    });
    const cancel = () => timer.cancel();
    stopping.addEventListener('abort', cancel, { once: true });
  }

  /** Catches up if that is due already. Returns how to end it. */
  begin(job: Job, ref = keptRef(job)): () => void {
    const present = this.#present.get(job);
    if (present) return present;
    const leave = this.#join(job, ref);
    const end = () => {
      const left = ref.deref();
      if (left) this.#present.delete(left);
      leave?.();
    };
    this.#present.set(job, end);
    if (this.#isStarted) this.#parts.catchUp.look(job);
    return end;
  }

  /** Ticks may have passed while nobody led. */
  #join({ key: place, options: { leader } }: Job, ref: JobRef): (() => void) | undefined {
    const { elections, catchUp, stopping } = this.#parts;
    if (leader === undefined || stopping.aborted) return undefined;
    const run = () => {
      const job = ref.deref();
      if (job && this.#isStarted) catchUp.look(job);
    };
    const isFiring = () => ref.deref()?.isFiring() ?? false;
    return elections.joinForJob(leader, { place, run, isFiring });
  }

  /** Once, until the job is fired again. */
  #warnIfLeader(job: Job): void {
    const { leader } = job.options;
    if (leader === undefined || this.#warned.has(job) || !this.#parts.elections.presentTerm(leader)) return;
    this.#warned.add(job);
    this.#logger.warn(
      `This process leads "${leader}", but its scheduler does not fire the job '${job.key}', which runs on the leader ` +
        `only. So the job runs nowhere now. Join this election only in processes whose scheduler fires the job.`,
    );
  }
}
