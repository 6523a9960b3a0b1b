import type { SectionRecord } from '../history.js';
import type { RecipeChecker, RoundEvidence } from './checker.js';
import { overlaps } from './overlaps.js';

const isUnderTerm = ({ key }: SectionRecord) => key !== undefined;

/** Two never lead at once, no two have one term, and what the queue accepted came in the order of the terms. */
export class LeaderChecker implements RecipeChecker {
  readonly isNeeded = isUnderTerm;
  readonly #reported = new Set<string>();
  readonly #owners = new Map<bigint, number>();
  #newest = 0n;
  #checkedArrivals = 0;

  check({ history: { sections }, arrivals }: RoundEvidence) {
    const doubled = arrivals.slice(this.#checkedArrivals).flatMap(({ worker, term }) => {
      const owner = this.#owners.get(term) ?? worker;
      this.#owners.set(term, owner);
      const isOlder = term < this.#newest;
      if (!isOlder) this.#newest = term;
      return [
        ...(owner === worker ? [] : [`term ${term} is that of workers ${owner} and ${worker}`]),
        ...(isOlder ? [`the queue accepted term ${term} after ${this.#newest}`] : []),
      ];
    });
    const effects = arrivals.length - this.#checkedArrivals;
    this.#checkedArrivals = arrivals.length;
    const fresh = overlaps(sections.filter(isUnderTerm)).filter((finding) => !this.#reported.has(finding));
    for (const finding of fresh) this.#reported.add(finding);
    return {
      ...{ effects, lostUpdates: 0, doubleEffects: doubled.length },
      findings: [...doubled, ...fresh],
    };
  }
}
