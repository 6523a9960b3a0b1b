import type { Arrival, History, SectionSeen } from '../history.js';

export interface Seen {
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

export interface Judge {
  /** Called when no call runs; with `isCumulative`, of all rounds so far. */
  judge(seen: Seen): Verdict;
  /** Sections that later rounds are compared with. */
  readonly isNeeded: (section: SectionSeen) => boolean;
}
