import { randomUUID } from 'node:crypto';
import type { Store } from '../../support/stores.js';
import { watchForStandstills } from '../../support/standstills.js';
import { until } from '../../support/until.js';
import { type Worker, startWorker } from '../../cluster/start-worker.js';

interface ReplicaMessage {
  readonly isReady?: true;
  readonly ranTickMs?: number;
  readonly skippedTickMs?: number;
  readonly reason?: string;
  readonly electedAtMs?: number;
  readonly revokedAtMs?: number;
}

interface DeployOutcome {
  readonly ticksRun: number;
  readonly ticksRunTwice: number;
  /** Those between the first and the last one that nobody ran although the machine did not stand still; with what each replica said of it. */
  readonly ticksLeftOut: Readonly<Record<string, readonly string[]>>;
  /** From each revoked term to the next one. */
  readonly handOversMs: readonly number[];
}

/** Replaces each of so many replicas in turn by a new one, as a deploy does, and answers what that did to their work. */
export async function deploy(store: Store, { replicas = 4, periodMs = 1_000 } = {}): Promise<DeployOutcome> {
  const task = { store, namespace: randomUUID(), periodMs };
  const all: Worker<ReplicaMessage>[] = [];
  const start = async () => {
    const worker = startWorker<ReplicaMessage>('deployed', task);
    all.push(worker);
    await until(() => worker.messages.some(({ isReady }) => isReady));
    return worker;
  };
  const stop = async ({ process, ended }: Worker<ReplicaMessage>) => {
    process.send('close');
    await ended;
  };
  const collect = <T>(pick: (message: ReplicaMessage) => T | undefined) =>
    all.flatMap(({ messages }) => messages.flatMap((message) => pick(message) ?? []));
  const ran = () => collect(({ ranTickMs }) => ranTickMs);
  const reasonsFor = (tickMs: number) =>
    collect(({ skippedTickMs, reason }) => (skippedTickMs === tickMs ? reason : undefined));
  const elections = () => collect(({ electedAtMs }) => electedAtMs);
  const revocations = () => collect(({ revokedAtMs }) => revokedAtMs);
  const hasRunSome = async () => {
    const before = ran().length;
    await until(() => ran().length >= before + 3);
  };

  const watch = watchForStandstills();
  const old: Worker<ReplicaMessage>[] = [];
  // On Redis in line for the leadership, so that each of them leads in its turn.
  for (let count = 0; count < replicas; count += 1) old.push(await start());
  await until(() => elections().length === 1);
  await hasRunSome();
  for (const worker of old) {
    await start();
    await stop(worker);
    await until(() => elections().length > revocations().length);
    await hasRunSome();
  }
  for (const worker of all.slice(replicas)) await stop(worker);

  watch.end();

  const ticks = ran();
  const ranOnce = new Set(ticks);
  const leftOut: number[] = [];
  for (let tickMs = Math.min(...ticks); tickMs < Math.max(...ticks); tickMs += periodMs)
    if (!ranOnce.has(tickMs) && watch.wasRunningAt(tickMs)) leftOut.push(tickMs);
  const elected = elections().toSorted((one, other) => one - other);
  const revoked = revocations().toSorted((one, other) => one - other);
  return {
    ticksRun: ranOnce.size,
    ticksRunTwice: ticks.length - ranOnce.size,
    ticksLeftOut: Object.fromEntries(
      leftOut.map((tickMs) => [new Date(tickMs).toISOString(), reasonsFor(tickMs)]),
    ),
    handOversMs: elected.slice(1).map((atMs, index) => atMs - revoked[index]!),
  };
}
