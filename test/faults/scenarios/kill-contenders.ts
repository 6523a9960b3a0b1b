import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../support/stores.js';
import { until } from '../../support/until.js';
import { type Worker, startWorker } from '../../cluster/start-worker.js';
import { machineMs } from '../../support/machine-clock.js';

interface ContenderMessage {
  readonly askedAtMs: number;
  /** Missing if it did not have to wait. */
  readonly queuedAtMs?: number;
  readonly fromMs: number;
  readonly fencingToken: string;
  /** Missing while it is held, and from a holder that was killed. */
  readonly toMs?: number;
}

export interface HoldRecord {
  readonly worker: number;
  readonly askedAtMs: number;
  /** Since when it surely stood in line. */
  readonly queuedAtMs: number;
  readonly fromMs: number;
  /** When it was given back, or when its holder was killed; when it began, if it was lost because the machine stood still. */
  readonly toMs: number;
  readonly fencingToken: bigint;
}

interface KillPlan {
  readonly store: Store;
  readonly namespace: string;
  readonly key: string;
  readonly contenders: number;
  readonly leaseMs: number;
  readonly kills: number;
  /** On average, between two kills. */
  readonly pauseMs: number;
}

interface Contender extends Worker<ContenderMessage> {
  readonly number: number;
  killedAtMs?: number;
}

/** Lets processes contend for one key, kills some of them, and tells who held it, in order. */
export async function killContenders(plan: KillPlan): Promise<readonly HoldRecord[]> {
  const all: Contender[] = [];
  const start = () => {
    const started: Contender = { ...startWorker<ContenderMessage>('contend-on', plan), number: all.length };
    all.push(started);
    return started;
  };
  const running = Array.from({ length: plan.contenders }, start);
  await until(() => running.every(({ messages }) => messages.length > 0));
  for (let kills = 0; kills < plan.kills; kills += 1) {
    await sleep(plan.pauseMs * (0.5 + Math.random()));
    const victim = Math.floor(Math.random() * running.length);
    const killed = running[victim]!;
    // Not after its end: on a busy machine that is heard of only when the next one has long had the key.
    killed.killedAtMs = machineMs();
    killed.process.kill('SIGKILL');
    await killed.ended;
    running[victim] = start();
  }
  await until(() => running.every(({ messages }) => messages.length > 0));
  for (const { process } of running) process.send('end');
  await Promise.all(running.map(({ ended }) => ended));
  return all.flatMap(holdsOf).sort((one, other) => one.fromMs - other.fromMs);
}

function holdsOf({ number, messages, killedAtMs = NaN }: Contender): HoldRecord[] {
  const turns = new Map<string, ContenderMessage>();
  for (const message of messages) turns.set(message.fencingToken, message);
  return [...turns.values()].map(({ queuedAtMs = Infinity, toMs = killedAtMs, ...message }) => ({
    worker: number,
    ...{ ...message, queuedAtMs, toMs, fencingToken: BigInt(message.fencingToken) },
  }));
}

/** Who was served before somebody who had stood in line when he asked. */
export function overtakings(held: readonly HoldRecord[]): readonly string[] {
  return held.flatMap((first, index) =>
    held
      .slice(index + 1, index + 50)
      .filter((later) => later.queuedAtMs < first.askedAtMs)
      .map(
        (later) =>
          `${first.worker} before ${later.worker}, who came ${first.askedAtMs - later.queuedAtMs} ms earlier`,
      ),
  );
}

/** The longest time in which nobody held the key. */
export const longestGapMs = (held: readonly HoldRecord[]): number =>
  held.slice(1).reduce((longest, { fromMs }, index) => Math.max(longest, fromMs - held[index]!.toMs), 0);
