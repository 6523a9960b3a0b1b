import { setTimeout as sleep } from 'node:timers/promises';
import { type Worker, startWorker } from '../../cluster/start-worker.js';
import { memoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import { Events } from '../../../lib/core/events.js';
import { Locks } from '../../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../lib/core/options.js';
import { SwitchableBackend } from '../../../lib/testing/switchable-backend.js';
import {
  type Contention,
  type ContentionMessage,
  type Hold,
  contend,
} from '../../support/kinds/contention.js';
import { machineMs } from '../../support/machine-clock.js';
import type { Store } from '../../support/stores.js';
import { until } from '../../support/until.js';

/** A process that contends, or something that behaves like one. */
export interface KindContender {
  readonly messages: readonly ContentionMessage[];
  kill(): Promise<unknown>;
  stop(): void;
  goOn(): void;
  /** Settles with 0 if all went well. */
  end(): Promise<unknown>;
}

export interface KindPlan extends Contention {
  readonly namespace: string;
  readonly leaseMs: number;
}

/** A process of its own. */
export function startContender(store: Store, plan: KindPlan): KindContender {
  const worker: Worker<ContentionMessage> = startWorker('contend-for-kinds', { store, ...plan });
  return {
    messages: worker.messages,
    kill: () => (worker.process.kill('SIGKILL'), worker.ended),
    stop: () => void worker.process.kill('SIGSTOP'),
    goOn: () => void worker.process.kill('SIGCONT'),
    end: () => (worker.process.send('end'), worker.ended),
  };
}

/**
 * For locks in memory, which no other process shares: all contenders share the locks of one process. A kill makes the
 * callers of one leave, also while they wait, and a stop cuts all off from the store.
 */
export function localContenders({ namespace, leaseMs, ...contention }: KindPlan) {
  const backend = new SwitchableBackend(memoryBackend());
  const source = { namespace, instance: 'contenders', backend: backend.name, module: 'default' };
  const defaults = { ...BUILT_IN_LOCK_OPTIONS, leaseMs };
  const locks = new Locks({ ...source, backend, defaults, events: new Events(source) });
  const start = (): KindContender => {
    const messages: ContentionMessage[] = [];
    const [over, killed] = [new AbortController(), new AbortController()];
    const send = (message: ContentionMessage) => void messages.push(message);
    const withLock: typeof locks.withLock = (key, options, work) =>
      locks.withLock(key, { ...options, signal: killed.signal }, work);
    const contending = contend(contention, { locks: { withLock }, send, signal: over.signal });
    const kill = async () => {
      over.abort();
      killed.abort();
      await contending.catch(() => undefined);
    };
    const setReachable = (isReachable: boolean) => (backend.isReachable = isReachable);
    return {
      messages,
      kill,
      stop: () => void setReachable(false),
      goOn: () => void setReachable(true),
      end: () => (over.abort(), contending.then(() => 0)),
    };
  };
  return { locks, start };
}

interface Faults {
  readonly contenders: number;
  readonly minutes: number;
  readonly leaseMs: number;
}

export interface KindHistory {
  readonly holds: readonly Hold[];
  /** Of contenders that were never stopped: what a stopped process waits says nothing. */
  readonly undisturbedHolds: readonly Hold[];
  readonly failures: readonly string[];
  readonly kills: number;
  readonly stops: number;
  /** How many contenders ended with an error. */
  readonly badEnds: number;
}

const PAUSE_MS = 2_000;

/** Lets contenders contend while one after the other is killed and replaced, or stopped for up to two leases. */
export async function disturbContenders(
  start: () => KindContender,
  { contenders, minutes, leaseMs }: Faults,
): Promise<KindHistory> {
  const running = Array.from({ length: contenders }, start);
  const all = [...running];
  const stopped = new Set<KindContender>();
  const untilStarted = () => until(() => running.every(({ messages }) => messages.length > 0));
  await untilStarted();
  let [kills, stops] = [0, 0];
  for (const endMs = machineMs() + minutes * 60_000; machineMs() < endMs;) {
    await sleep(PAUSE_MS * (0.5 + Math.random()));
    const victim = Math.floor(Math.random() * running.length);
    const contender = running[victim]!;
    if (Math.random() < 0.5) {
      kills += 1;
      await contender.kill();
      running[victim] = start();
      all.push(running[victim]);
    } else {
      stops += 1;
      stopped.add(contender);
      contender.stop();
      await sleep(Math.random() * 2 * leaseMs);
      contender.goOn();
    }
  }
  await untilStarted();
  const ends = await Promise.all(running.map((contender) => contender.end()));
  const holdsOf = (some: readonly KindContender[]) =>
    some.flatMap(({ messages }) => messages.flatMap(({ held }) => held ?? []));
  return {
    holds: holdsOf(all),
    undisturbedHolds: holdsOf(all.filter((contender) => !stopped.has(contender))),
    failures: all.flatMap(({ messages }) => messages.flatMap(({ failed }) => failed ?? [])),
    ...{ kills, stops, badEnds: ends.filter((end) => end !== 0).length },
  };
}
