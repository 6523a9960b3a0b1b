import type { Bench, Case, BenchContext } from './bench.js';
import type { BenchStores } from './bench-stores.js';
import { type Contender, profilesOf } from './contender.js';
import { WorkerPool } from './worker-pool.js';
import { ALL_CORES, CONTENDER_CORE, SERVER_CORE } from './pin.js';
import type { Result } from './results.js';

interface Plan {
  readonly benches: readonly Bench[];
  readonly contenders: readonly Contender[];
  /** Only the cases with this name. */
  readonly caseName: string | undefined;
  readonly turns: number;
  readonly isQuick: boolean;
  readonly canPin: boolean;
}

/** Long enough for all that may stand in line. */
const WAIT_MS = 120_000;

/** Who failed so often in a case is not asked again. */
const MAX_FAILURES = 2;

/**
 * Every turn runs every contender once, each case of it in processes of its own. Those that are compared follow each
 * other, and each turn begins with another of them: so what disturbs the machine for a while disturbs all alike.
 */
export async function* takeTurns(stores: BenchStores, plan: Plan): AsyncGenerator<Result> {
  for (const bench of plan.benches) {
    const isPinned = plan.canPin && bench.isPinned === true;
    if (plan.canPin) await stores.pin(isPinned ? `${SERVER_CORE}` : ALL_CORES);
    const groups = comparedRuns(bench, plan);
    const failures = new Map<Run, number>();
    for (let turn = 0; turn < plan.turns; turn += 1) {
      for (const run of groups.flatMap((runs) => rotated(runs, turn / plan.turns))) {
        const failed = failures.get(run) ?? 0;
        if (failed === MAX_FAILURES) continue;
        const result = await measure(stores, { ...run, bench, isPinned });
        if (result.failure !== undefined) failures.set(run, failed + 1);
        yield { turn, ...result };
      }
    }
  }
}

interface Run extends BenchContext {
  readonly oneCase: Case;
}

/** All runs of a bench, those together that are compared: one case on one store. */
function comparedRuns(bench: Bench, { contenders, caseName, isQuick }: Plan): Run[][] {
  const groups = new Map<string, Run[]>();
  for (const contender of contenders) {
    if (!bench.takesPart(contender) || contender.only?.includes(bench.name) === false) continue;
    for (const profile of profilesOf(contender)) {
      for (const oneCase of bench.cases({ contender, profile, isQuick })) {
        if (caseName !== undefined && oneCase.name !== caseName) continue;
        const groupName = `${contender.store} ${oneCase.name}`;
        groups.set(groupName, [...(groups.get(groupName) ?? []), { contender, profile, isQuick, oneCase }]);
      }
    }
  }
  return [...groups.values()];
}

async function measure(
  stores: BenchStores,
  { bench, contender, profile, oneCase, isPinned }: Run & { bench: Bench; isPinned: boolean },
): Promise<Omit<Result, 'turn'>> {
  const { name, store, kind } = contender;
  const line = { bench: bench.name, caseName: oneCase.name, store, contender: name, kind, profile };
  let workers: WorkerPool<Case, Readonly<Record<string, number>>> | undefined;
  try {
    const setting = { profile, leaseMs: bench.leaseMs, waitMs: WAIT_MS, stores: await stores.clean(store) };
    workers = await WorkerPool.open(
      { bench: bench.name, contender: name, store, setting },
      {
        processes: oneCase.processes,
        timeoutMs: bench.timeoutMs,
        core: isPinned ? CONTENDER_CORE : undefined,
      },
    );
    return {
      ...line,
      figures: await bench.measure(workers, oneCase),
      uncaughtErrors: [...workers.uncaughtErrors],
    };
  } catch (error) {
    const failure = error instanceof Error ? error.message : String(error);
    return { ...line, failure, uncaughtErrors: [...(workers?.uncaughtErrors ?? [])] };
  } finally {
    await workers?.close();
  }
}

/** The list from a share of its length on, and then its start. */
function rotated<T>(list: readonly T[], share: number): T[] {
  const from = Math.floor(list.length * share);
  return [...list.slice(from), ...list.slice(0, from)];
}
