import { keepCoresAwake } from './awake-cores.js';
import type { Bench } from './bench.js';
import type { BenchStores } from './bench-stores.js';
import { type Contender, profilesOf } from './contender.js';
import { ContenderRun, type Run } from './contender-run.js';
import { ALL_CORES, SERVER_CORE } from './pin.js';
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
    const groups = comparedRuns({ bench, isPinned }, plan);
    const failures = new Map<Run, number>();
    for (let turn = 0; turn < plan.turns; turn += 1) {
      for (const runs of groups) {
        const running = rotated(runs, turn / plan.turns).filter(
          (run) => (failures.get(run) ?? 0) < MAX_FAILURES,
        );
        const { rounds } = runs[0]!.oneCase;
        const results = rounds === undefined ? oneByOne(stores, running) : inRounds(stores, running, rounds);
        for await (const { run, round, ...result } of results) {
          if (result.failure !== undefined) failures.set(run, (failures.get(run) ?? 0) + 1);
          yield { turn: turn * (rounds ?? 1) + round, ...result };
        }
      }
    }
  }
}

interface RunResult extends Omit<Result, 'turn'> {
  readonly run: Run;
  readonly round: number;
}

async function* oneByOne(stores: BenchStores, runs: readonly Run[]): AsyncGenerator<RunResult> {
  for (const run of runs) {
    const contender = new ContenderRun(run);
    await contender.open(stores.clean(run.contender.store));
    const result = await contender.measure();
    await contender.close();
    yield { run, round: 0, ...result };
  }
}

/** All that are compared measure for a moment, again and again, in processes that stay open. */
async function* inRounds(
  stores: BenchStores,
  runs: readonly Run[],
  rounds: number,
): AsyncGenerator<RunResult> {
  const [first] = runs;
  if (!first) return;
  const endSpinning = first.isPinned && first.oneCase.keepsCoresAwake ? await keepCoresAwake() : undefined;
  const opened = runs.map((run) => ({ run, contender: new ContenderRun(run) }));
  try {
    const cleaned = stores.clean(first.contender.store);
    for (const { contender } of opened) await contender.open(cleaned);
    const failed = new Set<Run>();
    for (let round = 0; round < rounds; round += 1) {
      for (const { run, contender } of rotated(opened, round / rounds)) {
        if (failed.has(run)) continue;
        const result = await contender.measure();
        if (result.failure !== undefined) failed.add(run);
        yield { run, round, ...result };
      }
    }
  } finally {
    for (const { contender } of opened) await contender.close();
    await endSpinning?.();
  }
}

/** All runs of a bench, those together that are compared: one case on one store. */
function comparedRuns(
  { bench, isPinned }: { readonly bench: Bench; readonly isPinned: boolean },
  { contenders, caseName, isQuick }: Plan,
): Run[][] {
  const groups = new Map<string, Run[]>();
  for (const contender of contenders) {
    if (!bench.takesPart(contender) || contender.only?.includes(bench.name) === false) continue;
    for (const profile of profilesOf(contender)) {
      for (const oneCase of bench.cases({ contender, profile, isQuick })) {
        if (caseName !== undefined && oneCase.name !== caseName) continue;
        const groupName = `${contender.store} ${oneCase.name}`;
        const run = { bench, isPinned, contender, profile, isQuick, oneCase };
        groups.set(groupName, [...(groups.get(groupName) ?? []), run]);
      }
    }
  }
  return [...groups.values()];
}

/** The list from a share of its length on, and then its start. */
function rotated<T>(list: readonly T[], share: number): T[] {
  const from = Math.floor(list.length * share);
  return [...list.slice(from), ...list.slice(0, from)];
}
