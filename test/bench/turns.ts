import type { Bench, Case, Visit } from './bench.js';
import type { BenchStores } from './bench-stores.js';
import { type Contender, profilesOf } from './contender.js';
import { Crew } from './crew.js';
import { ALL_CORES, CONTENDER_CORE, SERVER_CORE } from './pin.js';
import type { Result } from './results.js';

export interface Plan {
  readonly benches: readonly Bench[];
  readonly contenders: readonly Contender[];
  readonly turns: number;
  readonly isQuick: boolean;
  readonly canPin: boolean;
}

/** Long enough for all that may stand in line. */
const WAIT_MS = 120_000;

/**
 * Every turn runs every contender once, each case of it in processes of its own, and begins with another contender:
 * so what disturbs the machine for a while disturbs one turn of all, and not all turns of one.
 */
export async function* takeTurns(stores: BenchStores, plan: Plan): AsyncGenerator<Result> {
  for (const bench of plan.benches) {
    const isPinned = plan.canPin && bench.isPinned === true;
    if (plan.canPin) await stores.pin(isPinned ? `${SERVER_CORE}` : ALL_CORES);
    const runs = runsOf(bench, plan);
    for (let turn = 0; turn < plan.turns; turn += 1) {
      for (const run of rotated(runs, Math.floor((turn * runs.length) / plan.turns)))
        yield { turn, ...(await measure(stores, { ...run, bench, isPinned })) };
    }
  }
}

interface Run extends Visit {
  readonly oneCase: Case;
}

function runsOf(bench: Bench, { contenders, isQuick }: Plan): Run[] {
  const chosen = contenders.filter(
    (contender) => bench.takesPart(contender) && (contender.only?.includes(bench.name) ?? true),
  );
  const visits = chosen.flatMap((contender) =>
    profilesOf(contender).map((profile): Visit => ({ contender, profile, isQuick })),
  );
  return visits.flatMap((visit) => bench.cases(visit).map((oneCase) => ({ ...visit, oneCase })));
}

async function measure(
  stores: BenchStores,
  { bench, contender, profile, oneCase, isPinned }: Run & { bench: Bench; isPinned: boolean },
): Promise<Omit<Result, 'turn'>> {
  const { name, store, kind } = contender;
  const line = { bench: bench.name, caseName: oneCase.name, store, contender: name, kind, profile };
  let crew: Crew<Case, Readonly<Record<string, number>>> | undefined;
  try {
    const setting = { profile, leaseMs: bench.leaseMs, waitMs: WAIT_MS, stores: await stores.clean(store) };
    crew = await Crew.open(
      { bench: bench.name, contender: name, store, setting },
      {
        processes: oneCase.processes,
        limitMs: bench.limitMs,
        core: isPinned ? CONTENDER_CORE : undefined,
      },
    );
    return { ...line, figures: await bench.measure(crew, oneCase), strays: [...crew.strays] };
  } catch (error) {
    const failure = error instanceof Error ? error.message : String(error);
    return { ...line, failure, strays: [...(crew?.strays ?? [])] };
  } finally {
    await crew?.close();
  }
}

const rotated = <T>(list: readonly T[], by: number): T[] => [...list.slice(by), ...list.slice(0, by)];
