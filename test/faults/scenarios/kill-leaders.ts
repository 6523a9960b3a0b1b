import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { machineMs } from '../../support/machine-clock.js';
import type { Store } from '../../support/stores.js';
import { until } from '../../support/until.js';
import { type Worker, startWorker } from '../../cluster/start-worker.js';

interface ReplicaMessage {
  readonly isReady?: true;
  readonly lookedAtMs?: number;
  readonly election?: string;
  readonly term?: string;
  readonly fromMs?: number;
  readonly isOver?: true;
}

/** One term, as the process that led told it. */
interface TermRecord {
  readonly election: string;
  readonly term: bigint;
  readonly fromMs: number;
  /** When it was last seen to lead; for who was killed, when it last looked before that. */
  toMs: number;
  isOver: boolean;
}

interface KillPlan {
  readonly store: Store;
  readonly namespace: string;
  readonly elections: number;
  readonly replicas: number;
  readonly leaseMs: number;
  /** Each kills the process that leads the next election in turn, and all others that it leads with it. */
  readonly kills: number;
}

interface KillOutcome {
  /** All terms of each election, in the order in which they began. */
  readonly terms: readonly (readonly TermRecord[])[];
  /** From the kill of a leader to the next one, for each election that was led by who was killed. */
  readonly failOversMs: readonly number[];
}

/** One process that stands in all elections, and what it told. */
class Replica {
  readonly worker: Worker<ReplicaMessage>;
  readonly terms: TermRecord[] = [];
  isReady = false;

  constructor(plan: KillPlan) {
    this.worker = startWorker<ReplicaMessage>('lead', plan);
    this.worker.process.on('message', (message) => this.#onMessage(message as ReplicaMessage));
  }

  get activeTerms(): TermRecord[] {
    return this.terms.filter(({ isOver }) => !isOver);
  }

  async kill(): Promise<void> {
    // What it told before arrives until then.
    const disconnected = once(this.worker.process, 'disconnect');
    this.worker.process.kill('SIGKILL');
    await Promise.all([disconnected, this.worker.ended]);
    for (const one of this.activeTerms) one.isOver = true;
  }

  async end(): Promise<void> {
    this.worker.process.send('end');
    await this.worker.ended;
  }

  #onMessage({ isReady, lookedAtMs, election, term, fromMs, isOver }: ReplicaMessage): void {
    this.isReady ||= isReady ?? false;
    // It is kept in `led`.
    this.worker.messages.length = 0;
    if (lookedAtMs !== undefined) for (const one of this.activeTerms) one.toMs = lookedAtMs;
    if (election === undefined || term === undefined) return;
    if (fromMs !== undefined)
      this.terms.push({ election, term: BigInt(term), fromMs, toMs: fromMs, isOver: false });
    if (isOver) for (const one of this.activeTerms) if (one.term === BigInt(term)) one.isOver = true;
  }
}

/** Lets processes stand in many elections, kills those that lead, and tells who led when. */
export async function killLeaders(plan: KillPlan): Promise<KillOutcome> {
  const all: Replica[] = [];
  const start = () => {
    const replica = new Replica(plan);
    all.push(replica);
    return replica;
  };
  const running = Array.from({ length: plan.replicas }, start);
  const isEachLed = () =>
    running.reduce((count, { activeTerms }) => count + activeTerms.length, 0) >= plan.elections;
  const endedElections: { election: string; killedAtMs: number }[] = [];
  await until(() => running.every(({ isReady }) => isReady) && isEachLed());
  for (let kill = 0; kill < plan.kills; kill += 1) {
    await sleep(Math.random() * (plan.leaseMs / 3)); // At any moment between two renewals.
    const next = `election:${Math.floor((kill * plan.elections) / plan.kills)}`;
    const victim = running.findIndex(({ activeTerms }) =>
      activeTerms.some(({ election }) => election === next),
    );
    const replica = running[victim];
    if (!replica) throw new Error(`Expected somebody to lead ${next}.`);
    const killedAtMs = machineMs();
    const ended = replica.kill();
    endedElections.push(...replica.activeTerms.map(({ election }) => ({ election, killedAtMs })));
    await ended;
    running[victim] = start();
    await until(() => isEachLed() && running.every(({ isReady }) => isReady));
  }
  await Promise.all(running.map((replica) => replica.end()));
  const byElection = new Map<string, TermRecord[]>();
  for (const one of all.flatMap(({ terms }) => terms).sort((one, other) => one.fromMs - other.fromMs)) {
    byElection.set(one.election, [...(byElection.get(one.election) ?? []), one]);
  }
  return {
    terms: [...byElection.values()],
    failOversMs: endedElections.map(({ election, killedAtMs }) => {
      const next = byElection.get(election)?.find(({ fromMs }) => fromMs > killedAtMs);
      return (next?.fromMs ?? Infinity) - killedAtMs;
    }),
  };
}

/** Pairs of terms of one election of which the later began before the last look at which the earlier was on. */
export const countOverlaps = ({ terms }: KillOutcome): number =>
  terms.reduce((count, ofOne) => {
    let lastMs = -Infinity;
    for (const { fromMs, toMs } of ofOne) {
      if (fromMs <= lastMs) count += 1;
      lastMs = Math.max(lastMs, toMs);
    }
    return count;
  }, 0);

/** Terms whose number is not larger than that of the term before. */
export const countTermsNotGrowing = ({ terms }: KillOutcome): number =>
  terms
    .flatMap((ofOne) => ofOne.slice(1).map(({ term }, index) => term > ofOne[index]!.term))
    .filter((grows) => !grows).length;
