import type { Contender, Profile, Session, Setting } from './contender.js';
import type { WorkerPool } from './worker-pool.js';

const NUMBERS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14] as const;

export type BenchName = `B${(typeof NUMBERS)[number]}`;

export const benchNames: readonly BenchName[] = NUMBERS.map((number) => `B${number}` as const);

/** What was measured, under the names that the bench explains in `columns`. */
export type Figures = Readonly<Record<string, number>>;

/** One measurement of a bench, in a form that goes to another process. */
export interface Case {
  readonly name: string;
  /** How many processes of the contender take part. */
  readonly processes: number;
  /**
   * How often it is measured in one turn, each time for a moment, the contenders one after the other. For figures that
   * differ by less than a machine does from one second to the next.
   */
  readonly rounds?: number;
  /** In rounds of a pinned bench: no core goes idle. For contenders with different numbers of round trips. */
  readonly keepsCoresAwake?: boolean;
  /** While a bench is pinned: the contender runs on the core of the servers. */
  readonly sharesCore?: boolean;
}

export interface Column {
  readonly figure: string;
  readonly title: string;
  readonly digits?: number;
}

export interface BenchContext {
  readonly contender: Contender;
  readonly profile: Profile;
  readonly isQuick: boolean;
}

/**
 * A bench has two halves: `work` runs in each process of a contender and answers what `measure` asks, which runs in
 * the process that started them.
 */
export interface Bench<OneCase extends Case = Case, Request = OneCase, Reply = Figures> {
  readonly name: BenchName;
  readonly title: string;
  /** The first is the one that contenders are compared by. */
  readonly columns: readonly [Column, ...Column[]];
  readonly better: 'more' | 'less';
  readonly leaseMs: number;
  /** Servers on one core and the contender on another: otherwise runs with and without a shared core would mix. */
  readonly isPinned?: boolean;
  /** What one case may take. */
  readonly timeoutMs: number;
  takesPart(contender: Contender): boolean;
  cases(context: BenchContext): readonly OneCase[];
  /** Before the first measurement of processes. */
  warmUp?(workers: WorkerPool<Request, Reply>, oneCase: OneCase): Promise<unknown>;
  measure(workers: WorkerPool<Request, Reply>, oneCase: OneCase): Promise<Figures>;
  work(
    session: Session,
    options: { contender: Contender; setting: Setting },
  ): (request: Request) => Promise<Reply>;
}

export const LEASE_MS = 30_000;
/** Shorter, as some wait until all leases are over. */
export const QUORUM_LEASE_MS = 10_000;

/** For benches of one process that does all the work. */
export const askOne = <Request, Reply>(
  workers: WorkerPool<Request, Reply>,
  request: Request,
): Promise<Reply> => workers.ask(0, request);
