import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../until.js';
import { Crew, type Member } from './crew.js';
import { History } from './history.js';
import { judgeOf } from './judges/judge-of.js';
import type { Judge, Verdict } from './judges/judge.js';
import type { Fate } from './messages.js';
import { type Prepared, pathOf } from './prepare.js';
import { Queue } from './queue.js';
import type { Place } from './stores.js';

/** What is done in one round. */
export interface Plan {
  readonly at: string;
  readonly fate: Fate;
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
  readonly prepared: Prepared;
  readonly place: Place;
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
  readonly #crew: Crew;
  readonly #queue: Queue;
  readonly #judge: Judge;
  #round = 0;

  private constructor(options: TrialOptions, queue: Queue) {
    const { prepared, place, code, leaseMs } = options;
    const { module, elections, recipe } = prepared;
    const namespace = randomUUID();
    this.#options = options;
    this.#queue = queue;
    this.#judge = judgeOf(recipe.driver);
    this.#crew = new Crew({
      ...{ code, size: SIZE, history: this.#history },
      task: {
        ...{ module, elections, namespace, leaseMs, queueUrl: queue.url, waitMs: WAIT_LEASES * leaseMs },
        ...{ declares: recipe.declares, driver: recipe.driver, locks: place.locks },
        resource: place.resourceFor(recipe.data, `r${namespace.slice(0, 8)}_`),
      },
    });
  }

  static async open(options: TrialOptions): Promise<Trial> {
    const trial = new Trial(options, await Queue.open());
    await trial.#crew.start();
    return trial;
  }

  get refusedByQueue(): number {
    return this.#queue.refused;
  }

  async play(plan: Plan): Promise<RoundOutcome> {
    const crew = this.#crew;
    await crew.ready();
    crew.tell({ round: (this.#round += 1) });
    const struck = await this.#strike(crew.members, plan);
    const others = crew.members.filter((member) => !struck.includes(member));
    const met = await this.#whileAway(plan, struck, others);
    const stopped = plan.fate === 'stop' ? struck : [];
    const ran = stopped.map((member) => ({ member, calls: member.calls }));
    for (const member of stopped) member.goOn();
    await this.#within(STOP_LEASES, () =>
      ran.every(({ member, calls }) => member.calls > calls || member.end !== undefined),
    );
    for (const member of met.members) member.goOn();
    await crew.pause();
    const verdict = this.#judge.judge({
      history: this.#history,
      contents: await crew.read(this.#round),
      arrivals: this.#queue.accepted,
    });
    const crashes = this.#crashes();
    this.#history.forget(this.#judge.isNeeded);
    crew.fill();
    return {
      ...plan,
      ...verdict,
      findings: [...verdict.findings, ...crashes],
      stops: stopped.length + met.members.length,
      kills: plan.fate === 'kill' ? struck.length : 0,
      wasReached: struck.length > 0,
      wereOthersSeen: met.wereSeen,
    };
  }

  /** Whoever comes by first is struck; the others go on. */
  async #strike(members: readonly Member[], { at, fate }: Plan): Promise<readonly Member[]> {
    // All wait for the one that the scheduler or the election chooses; of callers any one will do.
    const isChosenByUs = !['job', 'leader'].includes(this.#options.prepared.recipe.driver);
    const candidates = isChosenByUs ? [members[Math.floor(Math.random() * members.length)]!] : members;
    for (const member of candidates) member.tell({ arm: { at, fate } });
    const isStruck = (member: Member) => (fate === 'kill' ? member.end !== undefined : member.isStopped);
    await this.#within(REACH_LEASES, () => candidates.some(isStruck));
    for (const member of candidates) member.tell({ disarm: true });
    const struck = candidates.filter(({ struckAt }) => struckAt !== undefined);
    await until(() => struck.every(isStruck));
    return struck;
  }

  /** Waits until others have taken over, or until one of them has come to where they are to meet. */
  async #whileAway({ at, meetAt, fate }: Plan, struck: readonly Member[], others: readonly Member[]) {
    if (struck.length === 0) return { members: [], wereSeen: false };
    if (fate === 'kill') this.#crew.fill();
    if (meetAt !== undefined) {
      for (const member of others) member.tell({ arm: { at: meetAt, fate: 'stop' } });
      await this.#within(STOP_LEASES, () => others.some(({ isStopped }) => isStopped));
      for (const member of others) member.tell({ disarm: true });
      const members = others.filter(({ isStopped }) => isStopped);
      return { members, wereSeen: members.length > 0 };
    }
    const path = pathOf(at);
    const sinceMs = Math.max(...this.#history.strikes.slice(-struck.length).map(({ atMs }) => atMs));
    const isByOthers = (worker: number) => struck.every(({ number }) => number !== worker);
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
    return this.#crew.members
      .filter(({ end, struckAt }) => end !== undefined && struckAt === undefined)
      .map(({ end, number }) => `worker ${number} ended by itself with ${end}`);
  }

  async close(): Promise<void> {
    await this.#crew.close();
    this.#queue.close();
  }

  killAll(): void {
    this.#crew.killAll();
    this.#queue.close();
  }
}
