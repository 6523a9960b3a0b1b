import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, type Case, LEASE_MS } from '../bench.js';
import type { Held, StoreName } from '../contender.js';
import { machineMs } from '../../support/machine-clock.js';
import { median, times } from '../statistics.js';
import { warmUp } from '../warm-up.js';

interface HandOff extends Case {
  readonly repetitions: number;
}

type HandOffRequest =
  { readonly step: 'warm up' | 'release' } | { readonly step: 'acquire'; readonly key: string };

/** When it got the key, or when it began to give it back, in ms on the clock of the machine. */
interface HandOffReply {
  readonly atMs: number;
}

const STORES: readonly StoreName[] = ['redis', 'postgres', 'etcd', 'zookeeper'];
const HELD_MS = 500;
/** The waiter comes at another moment each time, so that no one's pauses fit. */
const WAITER_COMES_MS = { least: 60, most: 160 };

export const b5: Bench<HandOff, HandOffRequest, HandOffReply> = {
  name: 'B5',
  title: 'From the release in one process to the start of the waiter in another, held for 500 ms',
  columns: [
    { figure: 'medianMs', title: 'median ms', digits: 2 },
    { figure: 'longestMs', title: 'longest ms', digits: 2 },
    { figure: 'shortestMs', title: 'shortest ms', digits: 2 },
  ],
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 30_000,
  takesPart: ({ store }) => STORES.includes(store),
  cases: ({ isQuick }) => [{ name: 'hand-on', processes: 2, repetitions: isQuick ? 4 : 16 }],
  async measure(workers, { repetitions }) {
    await workers.askAll({ step: 'warm up' });
    const tookMs: number[] = [];
    for (const [round, key] of times(repetitions, (index) => `hand-on:${index}`).entries()) {
      const [holder, waiter] = round % 2 === 0 ? [0, 1] : [1, 0];
      await workers.ask(holder, { step: 'acquire', key });
      const comesMs = WAITER_COMES_MS.least + Math.random() * (WAITER_COMES_MS.most - WAITER_COMES_MS.least);
      await sleep(comesMs);
      const waiting = workers.ask(waiter, { step: 'acquire', key });
      await sleep(HELD_MS - comesMs);
      const [released, started] = await Promise.all([workers.ask(holder, { step: 'release' }), waiting]);
      tookMs.push(started.atMs - released.atMs);
      await workers.ask(waiter, { step: 'release' });
    }
    return { medianMs: median(tookMs), longestMs: Math.max(...tookMs), shortestMs: Math.min(...tookMs) };
  },
  work(session) {
    let held: Held | undefined;
    return async (request) => {
      if (request.step === 'warm up') await warmUp(session);
      if (request.step === 'acquire') held = await session.acquire(request.key);
      const atMs = machineMs();
      if (request.step === 'release') await held?.release();
      return { atMs };
    };
  },
};
