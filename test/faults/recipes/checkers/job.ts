import type { History, SectionRecord } from '../history.js';
import { groupBy } from '../group-by.js';
import type { RecipeChecker, RoundEvidence } from './checker.js';
import { overlaps } from './overlaps.js';

const isRun = ({ tickMs }: SectionRecord) => tickMs !== undefined;

/** An attempt of a tick is run once, and the next one only after a run that died or lost its lock. */
export class JobChecker implements RecipeChecker {
  readonly isNeeded = isRun;
  #checkedRuns = 0;
  readonly #reported = new Set<string>();

  check({ history: { sections, faults } }: RoundEvidence) {
    const runs = sections.filter(isRun);
    const ticks = [...groupBy(runs, ({ path, tickMs }) => `${path} ${tickMs}`).values()];
    const doubled = this.#new(ticks.flatMap((tick) => doubledIn(tick, faults)));
    const effects = runs.length - this.#checkedRuns;
    this.#checkedRuns = runs.length;
    return {
      ...{ effects, lostUpdates: 0, doubleEffects: doubled.length },
      findings: [...doubled, ...this.#new(overlaps(runs))],
    };
  }

  /** Each finding is told once, though all rounds are judged each time. */
  #new(findings: readonly string[]): string[] {
    const fresh = findings.filter((finding) => !this.#reported.has(finding));
    for (const finding of fresh) this.#reported.add(finding);
    return fresh;
  }
}

/** By their tokens: what a process that is stopped has told arrives when it goes on, after what came later. */
function doubledIn(sections: readonly SectionRecord[], faults: History['faults']): string[] {
  const runs = sections.toSorted((one, other) => Number(BigInt(one.token ?? 0) - BigInt(other.token ?? 0)));
  return runs.slice(1).flatMap((run, index) => {
    const before = runs[index]!;
    const { path, tickMs, attempt = 1 } = run;
    const tick = `${path}, tick ${new Date(tickMs!).toISOString()}`;
    if (attempt <= (before.attempt ?? 1) || BigInt(run.token ?? 0) <= BigInt(before.token ?? 0)) {
      return [
        `${tick}: attempt ${attempt} (token ${run.token}) after ${before.attempt} (token ${before.token})`,
      ];
    }
    const wasFaulted = faults.some(
      ({ worker, atMs }) => worker === before.worker && atMs >= before.atMs && atMs <= run.atMs,
    );
    return before.wasValidAtExit && !wasFaulted
      ? [`${tick}: attempt ${attempt} although attempt ${before.attempt} had ended`]
      : [];
  });
}
