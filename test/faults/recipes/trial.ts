import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../support/until.js';
import { WorkerPool, type RecipeWorker } from './worker-pool.js';
import { History } from './history.js';
import { checkerFor } from './checkers/checkers.js';
import type { RecipeChecker, Verdict } from './checkers/checker.js';
import type { FaultKind } from './messages.js';
import { type PreparedRecipe, pathOf } from './prepare.js';
import { Queue } from './queue.js';
import type { RecipeStore } from './recipe-stores.js';

/** What is done in one round. */
export interface Plan {
  readonly at: string;
  readonly fault: FaultKind;
  /** Where somebody else is stopped before the first one goes on. */
  readonly meetAt?: string;
}

export interface RoundOutcome extends Plan, Verdict {
  readonly stops: number;
  readonly kills: number;
  /** Somebody came by the checkpoint. */
  readonly wasReached: boolean;
  /** Others ran the same function while it was stopped or dead. */
  readonly wereOthersSeen: boolean;
}

interface TrialOptions {
  readonly prepared: PreparedRecipe;
  readonly store: RecipeStore;
  readonly code: string;
  readonly leaseMs: number;
}

const SIZE = 3;
/** How long a checkpoint is waited for, in leases: that of a crashed holder may come first. */
const REACH_LEASES = 12;
/** Longer than this nobody stays stopped: whoever waits for one of his rows would never go on. */
const STOP_LEASES = 5;
const WAIT_LEASES = 8;

/** Runs one recipe on one store, round by round. */
export class Trial {
  readonly #options: TrialOptions;
  readonly #history = new History();
  readonly #pool: WorkerPool;
  readonly #queue: Queue;
  readonly #checker: RecipeChecker;
  #round = 0;

  private constructor(options: TrialOptions, queue: Queue) {
    const { prepared, store, code, leaseMs } = options;
    const { module, elections, recipe } = prepared;
    const namespace = randomUUID();
    this.#options = options;
    this.#queue = queue;
    this.#checker = checkerFor(recipe.driver);
    this.#pool = new WorkerPool({
      ...{ code, size: SIZE, history: this.#history },
      task: {
        ...{ module, elections, namespace, leaseMs, queueUrl: queue.url, waitMs: WAIT_LEASES * leaseMs },
        ...{ declares: recipe.declares, driver: recipe.driver, locks: store.locks },
        resource: store.resourceFor(recipe.data, `r${namespace.slice(0, 8)}_`),
      },
    });
  }

  static async open(options: TrialOptions): Promise<Trial> {
    const trial = new Trial(options, await Queue.open());
    await trial.#pool.start();
    return trial;
  }

  get refusedByQueue(): number {
    return this.#queue.refused;
  }

  async runRound(plan: Plan): Promise<RoundOutcome> {
    const pool = this.#pool;
    await pool.waitUntilReady();
    pool.send({ round: (this.#round += 1) });
    const faulted = await this.#injectFault(pool.workers, plan);
    const others = pool.workers.filter((worker) => !faulted.includes(worker));
    const met = await this.#whileAway(plan, faulted, others);
    const stopped = plan.fault === 'stop' ? faulted : [];
    const ran = stopped.map((worker) => ({ worker, calls: worker.calls }));
    for (const worker of stopped) worker.goOn();
    await this.#within(STOP_LEASES, () =>
      ran.every(({ worker, calls }) => worker.calls > calls || worker.end !== undefined),
    );
    for (const worker of met.members) worker.goOn();
    await pool.pause();
    const verdict = this.#checker.check({
      history: this.#history,
      contents: await pool.read(this.#round),
      arrivals: this.#queue.accepted,
    });
    const crashes = this.#crashes();
    this.#history.dropFinished(this.#checker.isNeeded);
    pool.startMissing();
    return {
      ...plan,
      ...verdict,
      findings: [...verdict.findings, ...crashes],
      stops: stopped.length + met.members.length,
      kills: plan.fault === 'kill' ? faulted.length : 0,
      wasReached: faulted.length > 0,
      wereOthersSeen: met.wereSeen,
    };
  }

  /** Whoever comes by first is struck; the others go on. */
  async #injectFault(
    members: readonly RecipeWorker[],
    { at, fault }: Plan,
  ): Promise<readonly RecipeWorker[]> {
    // All wait for the one that the scheduler or the election chooses; of callers any one will do.
    const isChosenByUs = !['job', 'leader'].includes(this.#options.prepared.recipe.driver);
    const candidates = isChosenByUs ? [members[Math.floor(Math.random() * members.length)]!] : members;
    for (const worker of candidates) worker.send({ arm: { at, fault } });
    const isFaulted = (worker: RecipeWorker) =>
      fault === 'kill' ? worker.end !== undefined : worker.isStopped;
    await this.#within(REACH_LEASES, () => candidates.some(isFaulted));
    for (const worker of candidates) worker.send({ disarm: true });
    const faulted = candidates.filter(({ faultedAt }) => faultedAt !== undefined);
    await until(() => faulted.every(isFaulted));
    return faulted;
  }

  /** Waits until others have taken over, or until one of them has come to where they are to meet. */
  async #whileAway(
    { at, meetAt, fault }: Plan,
    faulted: readonly RecipeWorker[],
    others: readonly RecipeWorker[],
  ) {
    if (faulted.length === 0) return { members: [], wereSeen: false };
    if (fault === 'kill') this.#pool.startMissing();
    if (meetAt !== undefined) {
      for (const worker of others) worker.send({ arm: { at: meetAt, fault: 'stop' } });
      await this.#within(STOP_LEASES, () => others.some(({ isStopped }) => isStopped));
      for (const worker of others) worker.send({ disarm: true });
      const members = others.filter(({ isStopped }) => isStopped);
      return { members, wereSeen: members.length > 0 };
    }
    const path = pathOf(at);
    const sinceMs = Math.max(...this.#history.faults.slice(-faulted.length).map(({ atMs }) => atMs));
    const isByOthers = (worker: number) => faulted.every(({ number }) => number !== worker);
    const { takeovers } = this.#options.prepared.recipe;
    const runs = () =>
      this.#history.sections.filter(
        (section) => section.path === path && section.atMs > sinceMs && isByOthers(section.worker),
      ).length;
    await this.#within(STOP_LEASES, () => runs() >= takeovers);
    return { members: [], wereSeen: runs() >= takeovers };
  }

  /** Waits for the condition, but not for ever: what cannot come about is part of what is tried. */
  async #within(leases: number, condition: () => boolean): Promise<void> {
    const endMs = performance.now() + leases * this.#options.leaseMs;
    while (!condition() && performance.now() < endMs) await sleep(2);
  }

  #crashes(): string[] {
    return this.#pool.workers
      .filter(({ end, faultedAt }) => end !== undefined && faultedAt === undefined)
      .map(({ end, number }) => `worker ${number} ended by itself with ${end}`);
  }

  async close(): Promise<void> {
    await this.#pool.close();
    this.#queue.close();
  }

  killAll(): void {
    this.#pool.killAll();
    this.#queue.close();
  }
}
