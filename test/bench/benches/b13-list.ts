import type { Bench, Case, Figures } from '../bench.js';
import { figuresOf } from '../own-keys.js';
import type { Session } from '../contender.js';
import type { WorkerPool } from '../worker-pool.js';
import { median, quantile, times } from '../statistics.js';

interface Listed extends Case {
  readonly locks: number;
  readonly repetitions: number;
  readonly forMs: number;
}

type ListRequest =
  { readonly hold: number } | { readonly listForMs: number } | { readonly lockForMs: number };
type TookMs = readonly number[];

/** Long enough that the held locks are not renewed meanwhile. */
const LEASE_MS = 3_600_000;
const AT_ONCE = 200;
const [HOLDER, LOCKER] = [0, 1];

/** One process holds many locks and reads its list page by page, and another one acquires and releases meanwhile. */
export const b13: Bench<Listed, ListRequest, TookMs> = {
  name: 'B13',
  title: 'Acquire and release while another process lists all held locks, in pages of 100',
  columns: [
    { figure: 'p99Us', title: 'p99 while it lists, µs' },
    { figure: 'p99AloneUs', title: 'p99 alone, µs' },
    { figure: 'p99Ratio', title: '× alone', digits: 2 },
    { figure: 'perSecond', title: 'locks/s while it lists' },
    { figure: 'pageMs', title: 'median page, ms', digits: 2 },
    { figure: 'slowestPageMs', title: 'slowest page, ms', digits: 2 },
  ],
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 240_000,
  takesPart: ({ name, store }) => name === 'ours' && store !== 'memory' && store !== 'quorum',
  cases: ({ isQuick }) =>
    [1_000, 100_000].map((locks) => ({
      name: `${locks.toLocaleString('en')} locks`,
      processes: 2,
      locks: isQuick ? locks / 100 : locks,
      repetitions: isQuick ? 1 : 3,
      forMs: isQuick ? 500 : 4_000,
    })),
  async measure(workers, { locks, repetitions, forMs }) {
    await workers.ask(HOLDER, { hold: locks });
    await workers.ask(LOCKER, { lockForMs: forMs });
    const figures: Figures[] = [];
    for (let left = repetitions; left > 0; left -= 1) figures.push(await measureRound(workers, forMs));
    return Object.fromEntries(
      Object.keys(figures[0]!).map((name) => [name, median(figures.map((round) => round[name]!))]),
    );
  },
  work: (session) => async (request) => {
    if ('hold' in request) return hold(session, request.hold);
    if ('listForMs' in request) return listFor(session, request.listForMs);
    return lockFor(session, request.lockForMs);
  },
};

async function measureRound(workers: WorkerPool<ListRequest, TookMs>, forMs: number): Promise<Figures> {
  const alone = figuresOf(await workers.ask(LOCKER, { lockForMs: forMs }), forMs);
  const [pagesMs, tookMs] = await Promise.all([
    workers.ask(HOLDER, { listForMs: forMs }),
    workers.ask(LOCKER, { lockForMs: forMs }),
  ]);
  const { p99Us, perSecond } = figuresOf(tookMs, forMs);
  return {
    p99Us,
    p99AloneUs: alone.p99Us,
    p99Ratio: p99Us / alone.p99Us,
    perSecond,
    pageMs: median(pagesMs),
    slowestPageMs: quantile(pagesMs, 1),
  };
}

async function hold(session: Session, locks: number): Promise<TookMs> {
  for (let from = 0; from < locks; from += AT_ONCE)
    await Promise.all(
      times(Math.min(AT_ONCE, locks - from), (index) => session.acquire(`held:${from + index}`)),
    );
  return [];
}

async function listFor(session: Session, forMs: number): Promise<TookMs> {
  const endMs = performance.now() + forMs;
  const tookMs: number[] = [];
  let cursor: string | undefined;
  while (performance.now() < endMs) {
    const fromMs = performance.now();
    cursor = await session.listPage!(cursor);
    tookMs.push(performance.now() - fromMs);
  }
  return tookMs;
}

async function lockFor(session: Session, forMs: number): Promise<TookMs> {
  const endMs = performance.now() + forMs;
  const tookMs: number[] = [];
  for (let turn = 0; performance.now() < endMs; turn += 1) {
    const fromMs = performance.now();
    const held = await session.acquire(`free:${turn % AT_ONCE}`);
    await held.release();
    tookMs.push(performance.now() - fromMs);
  }
  return tookMs;
}
