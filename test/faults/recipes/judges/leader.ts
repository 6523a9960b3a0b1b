import type { SectionSeen } from '../history.js';
import type { Judge, Seen } from './judge.js';
import { overlaps } from './overlaps.js';

const isUnderTerm = ({ key }: SectionSeen) => key !== undefined;

/** Two never lead at once, no two have one term, and what the queue accepted came in the order of the terms. */
export class LeaderJudge implements Judge {
  readonly isNeeded = isUnderTerm;
  readonly #told = new Set<string>();
  readonly #owners = new Map<bigint, number>();
  #newest = 0n;
  #judged = 0;

  judge({ history: { sections }, arrivals }: Seen) {
    const doubled = arrivals.slice(this.#judged).flatMap(({ worker, term }) => {
      const owner = this.#owners.get(term) ?? worker;
      this.#owners.set(term, owner);
      const isOlder = term < this.#newest;
      if (!isOlder) this.#newest = term;
      return [
        ...(owner === worker ? [] : [`term ${term} is that of workers ${owner} and ${worker}`]),
        ...(isOlder ? [`the queue accepted term ${term} after ${this.#newest}`] : []),
      ];
    });
    const effects = arrivals.length - this.#judged;
    this.#judged = arrivals.length;
    const fresh = overlaps(sections.filter(isUnderTerm)).filter((finding) => !this.#told.has(finding));
    for (const finding of fresh) this.#told.add(finding);
    return {
      ...{ effects, lostUpdates: 0, doubleEffects: doubled.length },
      findings: [...doubled, ...fresh],
    };
  }
}
