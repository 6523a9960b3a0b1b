import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SingletonCronOptions, TickSkipReason } from '../../../lib/index.js';
import type { Service } from '../../services/service.js';
import type { Store } from '../../support/stores.js';
import { until } from '../../support/until.js';
import { type Worker, startWorker } from '../../cluster/start-worker.js';

interface RunMessage {
  readonly tickMs: number;
  readonly attempt: number;
  readonly token: string;
  readonly atMs: number;
}

interface ReplicaMessage {
  /** Once it is ready: when it began to boot, by its own clock. */
  readonly bootedMs?: number;
  readonly begun?: RunMessage;
  readonly ended?: RunMessage & { readonly isValid: boolean };
  readonly recorded?: string;
  readonly skipped?: { readonly tickMs: number; readonly reason: TickSkipReason };
  readonly warned?: string;
}

interface ReplicaPlan {
  readonly store: Store;
  readonly namespace: string;
  readonly replicas: number;
  readonly periodMs: number;
  readonly workMs: number;
  readonly options: SingletonCronOptions;
  /** Clocks are wrong by a whole number of periods from 0 to this. */
  readonly mostPeriodsOff: number;
}

/** One run, from all that its replica told of it. */
interface RunRecord {
  readonly tickMs: number;
  readonly attempt: number;
  readonly token: bigint;
  readonly fromMs: number;
  /** When its body ended; missing if its replica died before. */
  readonly toMs: number | undefined;
  /** The body ended while the lock was surely ours. */
  readonly isComplete: boolean;
  /** The store has confirmed that it ended. */
  readonly isRecorded: boolean;
}

/** Processes that run one job, of which any may be killed or stopped at any time. */
export class CronReplicas {
  readonly #plan: ReplicaPlan;
  readonly #all: Worker<ReplicaMessage>[] = [];
  #running: Worker<ReplicaMessage>[] = [];

  constructor(plan: ReplicaPlan) {
    this.#plan = plan;
  }

  async start(): Promise<void> {
    this.#running = Array.from({ length: this.#plan.replicas }, () => this.#startOne());
    await this.#ready();
  }

  /** Kills, stops and replaces replicas for so long, and restarts the store. */
  async injectFaults(forMs: number, restartStore: () => Promise<void>): Promise<Record<string, number>> {
    const counts = { kills: 0, stops: 0, restarts: 0 };
    const endMs = performance.now() + forMs;
    while (performance.now() < endMs) {
      await sleep(300 + Math.random() * 900);
      const victim = await this.#victim();
      const fate = Math.random();
      if (fate < 0.4) {
        counts.kills += 1;
        await end(this.#running[victim]!, 'SIGKILL');
        this.#running[victim] = this.#startOne();
      } else if (fate < 0.8) {
        counts.stops += 1;
        const { process: stopped } = this.#running[victim]!;
        stopped.kill('SIGSTOP');
        await sleep(200 + Math.random() * 1_800);
        stopped.kill('SIGCONT');
      } else {
        counts.restarts += 1;
        await restartStore();
      }
    }
    await this.#ready();
    return counts;
  }

  /** Kills one in the middle of a run, replaces it, and answers the tick that it ran. */
  async killBusy(): Promise<number> {
    for (;;) {
      let busy: Worker<ReplicaMessage> | undefined;
      await until(() => (busy = this.#running.find(({ messages }) => isBusy(messages))) !== undefined);
      // What it told before arrives until then.
      const disconnected = once(busy!.process, 'disconnect');
      await end(busy!, 'SIGKILL');
      await disconnected;
      this.#running[this.#running.indexOf(busy!)] = this.#startOne();
      // Otherwise its run ended before the signal came.
      if (isBusy(busy!.messages)) return runsFrom(busy!.messages).at(-1)!.tickMs;
    }
  }

  async killAll(): Promise<void> {
    await Promise.all(this.#running.map((worker) => end(worker, 'SIGKILL')));
  }

  async close(): Promise<void> {
    for (const { process } of this.#running) process.send('close');
    await Promise.all(this.#running.map(({ ended }) => ended));
  }

  get runs(): readonly RunRecord[] {
    return this.#all.flatMap(({ messages }) => runsFrom(messages));
  }

  /** Runs of ticks that were due before any of the processes was there. */
  get lateRuns(): readonly RunRecord[] {
    const booted = this.#all.flatMap(({ messages }) => messages.flatMap(({ bootedMs }) => bootedMs ?? []));
    const firstBootedMs = Math.min(...booted);
    return this.runs.filter(({ tickMs }) => tickMs < firstBootedMs);
  }

  /** About the job, of each replica that still runs. A busy store may be warned of, too. */
  get warnings(): readonly (readonly string[])[] {
    const all = this.#running.map(({ messages }) => messages.flatMap(({ warned }) => warned ?? []));
    return all.map((ofReplica) => ofReplica.filter((warning) => warning.includes('the job "')));
  }

  get skips(): readonly { readonly tickMs: number; readonly reason: TickSkipReason }[] {
    return this.#all.flatMap(({ messages }) => messages.flatMap(({ skipped }) => skipped ?? []));
  }

  /** Mostly one that is in the middle of a run. */
  async #victim(): Promise<number> {
    const anyone = Math.floor(Math.random() * this.#running.length);
    const endMs = performance.now() + (Math.random() < 0.7 ? 1_500 : 0);
    while (performance.now() < endMs) {
      const busy = this.#running.findIndex(({ messages }) => isBusy(messages));
      if (busy >= 0) return busy;
      await sleep(2);
    }
    return anyone;
  }

  #startOne(): Worker<ReplicaMessage> {
    const { mostPeriodsOff, periodMs, ...task } = this.#plan;
    const periodsOff = this.#all.length % (mostPeriodsOff + 1);
    const sign = this.#all.length % 2 === 0 ? 1 : -1;
    const worker = startWorker<ReplicaMessage>('cron-runs', {
      ...task,
      periodMs,
      skewMs: sign * periodsOff * periodMs,
    });
    this.#all.push(worker);
    return worker;
  }

  async #ready(): Promise<void> {
    await until(() =>
      this.#running.every(({ messages }) => messages.some(({ bootedMs }) => bootedMs !== undefined)),
    );
  }
}

function isBusy(messages: readonly ReplicaMessage[]): boolean {
  const { begun } = messages.findLast((message) => message.begun ?? message.ended) ?? {};
  return begun !== undefined;
}

async function end({ process, ended }: Worker<ReplicaMessage>, signal: NodeJS.Signals): Promise<void> {
  process.kill(signal);
  await ended;
}

function runsFrom(messages: readonly ReplicaMessage[]): RunRecord[] {
  const recorded = new Set(messages.flatMap((message) => message.recorded ?? []));
  const ends = new Map(messages.flatMap(({ ended }) => (ended ? [[ended.token, ended] as const] : [])));
  return messages.flatMap(({ begun }) => {
    if (!begun) return [];
    const { tickMs, attempt, token, atMs } = begun;
    const ended = ends.get(token);
    const isComplete = ended?.isValid ?? false;
    const run = { tickMs, attempt, token: BigInt(token), fromMs: atMs, toMs: ended?.atMs };
    return [{ ...run, isComplete, isRecorded: isComplete && recorded.has(token) }];
  });
}

interface Verdict {
  /** In which ticks a run began. */
  readonly ticksRun: number;
  readonly runs: number;
  /** Runs that died, or lost their lock. */
  readonly unfinished: number;
  /** Ticks of which two runs were given the same attempt, or whose fencing tokens did not grow with the attempts. */
  readonly misnumbered: number;
  /** Ticks that ran twice where one run was allowed, or again although the store had confirmed the end of a run. */
  readonly doubled: number;
  /** Ticks that ran again because the replica was killed, stopped or cut off before the store knew of the end. */
  readonly repeated: number;
  /** Ticks in which a run began and none was completed, although there were attempts left. */
  readonly lost: number;
}

export function checkRuns(runs: readonly RunRecord[], maxAttempts: number): Verdict {
  const ofTicks = [...byTick(runs).values()].map((group) =>
    group.toSorted((one, other) => one.attempt - other.attempt),
  );
  const isRepeated = (group: RunRecord[]) => group.filter(({ isComplete }) => isComplete).length > 1;
  // A run after one of whose end the store was sure.
  const isDoubled = (group: RunRecord[]) =>
    maxAttempts === 1 ? group.length > 1 : group.slice(0, -1).some(({ isRecorded }) => isRecorded);
  const isGrowing = (group: RunRecord[]) =>
    group
      .slice(1)
      .every((run, index) => run.attempt > group[index]!.attempt && run.token > group[index]!.token);
  const isLost = (group: RunRecord[]) =>
    !group.some(({ isComplete }) => isComplete) && group.at(-1)!.attempt < maxAttempts;
  return {
    ticksRun: ofTicks.length,
    runs: runs.length,
    unfinished: runs.filter(({ isComplete }) => !isComplete).length,
    misnumbered: ofTicks.filter((group) => !isGrowing(group)).length,
    doubled: ofTicks.filter(isDoubled).length,
    repeated: ofTicks.filter((group) => isRepeated(group) && !isDoubled(group)).length,
    lost: ofTicks.filter(isLost).length,
  };
}

function byTick<T extends { readonly tickMs: number }>(items: readonly T[]): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) groups.set(item.tickMs, [...(groups.get(item.tickMs) ?? []), item]);
  return groups;
}

/** Runs that overlapped while both were surely the only one. */
export const countOverlaps = (runs: readonly RunRecord[]): number => {
  const complete = runs
    .filter(({ isComplete }) => isComplete)
    .toSorted((one, other) => one.fromMs - other.fromMs);
  return complete.slice(1).filter(({ fromMs }, index) => fromMs < complete[index]!.toMs!).length;
};

/** What happened to ticks in which no run began: the most telling reason that a replica gave for each. */
export function countSkipReasons(replicas: CronReplicas, dueMs: readonly number[]): Record<string, number> {
  const ran = new Set(replicas.runs.map(({ tickMs }) => tickMs));
  const reasons = byTick(replicas.skips);
  const ranked = ['overlap', 'unavailable', 'stale', 'shutdown', 'taken'] as const;
  const found: Record<string, number> = {};
  for (const tickMs of dueMs.filter((due) => !ran.has(due))) {
    const message = new Set(reasons.get(tickMs)?.map(({ reason }) => reason));
    const reason = ranked.find((one) => message.has(one)) ?? 'nobody there';
    found[reason] = (found[reason] ?? 0) + 1;
  }
  return found;
}

/** Kills the server of a store and starts it again on its data. */
export async function restartServer(
  servers: Service[],
  start: (options: { port: number; dataDir: string }) => Promise<Service>,
): Promise<void> {
  const { port, dataDir, kill, exited } = servers.at(-1)!;
  kill('SIGKILL');
  await exited;
  await sleep(Math.random() * 1_000);
  servers.push(await start({ port, dataDir }));
}
