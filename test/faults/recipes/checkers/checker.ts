import type { Arrival, History, SectionRecord } from '../history.js';

export interface RoundEvidence {
  readonly history: History;
  /** What the observer read at the end of the round; `undefined` for a recipe that keeps no data. */
  readonly contents: unknown;
  readonly arrivals: readonly Arrival[];
}

/** What came out of a round. */
export interface Verdict {
  readonly effects: number;
  readonly lostUpdates: number;
  readonly doubleEffects: number;
  /** One sentence for each thing that must not be. */
  readonly findings: readonly string[];
}

export interface RecipeChecker {
  /** Called when no call runs; with `isCumulative`, of all rounds so far. */
  check(evidence: RoundEvidence): Verdict;
  /** Sections that later rounds are compared with. */
  readonly isNeeded: (section: SectionRecord) => boolean;
}
