import { type Hold, groupByKey, endOf } from '../workers/history.js';
import type { InjectedFault } from '../injected-fault.js';

/** Two holders who both could believe, for a time, that a key was theirs. */
export interface Overlap {
  readonly key: string;
  readonly earlier: Hold;
  readonly later: Hold;
  readonly byMs: number;
  /** A strike outside of the guarantee is to blame. */
  readonly isExcused: boolean;
}

/** When a strike ended is known a little later, or an answer is. */
const MARGIN_MS = 50;

/** The law of exclusion: the times in which the locks of one key are valid never meet. */
export function findOverlaps(holds: readonly Hold[], faults: readonly InjectedFault[]): Overlap[] {
  const outside = faults.filter(({ isInsideGuarantee }) => !isInsideGuarantee);
  return [...groupByKey(holds).values()].flatMap((ofKey) => {
    const overlaps: Overlap[] = [];
    const grantOf = grantsIn(ofKey);
    let longest: Hold | undefined;
    for (const later of ofKey.toSorted((one, other) => one.fromMs - other.fromMs)) {
      if (endOf(later) <= later.fromMs) continue;
      if (longest && endOf(longest) > later.fromMs) {
        const byMs = Math.min(endOf(longest), endOf(later)) - later.fromMs;
        const pair = { key: later.key, earlier: longest, later, byMs };
        overlaps.push({ ...pair, isExcused: outside.some((fault) => excuses(fault, pair, grantOf)) });
      }
      if (!longest || endOf(later) > endOf(longest)) longest = later;
    }
    return overlaps;
  });
}

/** Whose request brought each hold: callers of one process have a grant in turn, with one fencing token after the other. */
function grantsIn(ofKey: readonly Hold[]): (hold: Hold) => Hold {
  const nameOf = (worker: string, token: bigint) => `${worker} ${token}`;
  const holds = new Map(ofKey.map((hold) => [nameOf(hold.worker, hold.fencingToken), hold]));
  const grantOf = (hold: Hold): Hold => {
    const before = holds.get(nameOf(hold.worker, hold.fencingToken - 1n));
    return before ? grantOf(before) : hold;
  };
  return grantOf;
}

/**
 * The store forgot what it granted before the strike ended, and granted it to somebody else. A grant that was forgotten
 * cannot be renewed, so its holder is told within the lease.
 */
const excuses = (
  { startedAtMs, healedAtMs }: InjectedFault,
  { earlier, later }: Pick<Overlap, 'earlier' | 'later'>,
  grantOf: (hold: Hold) => Hold,
): boolean =>
  later.fromMs >= startedAtMs &&
  [earlier, later].some(
    (lostGrant) =>
      grantOf(lostGrant).askedAtMs <= healedAtMs &&
      endOf(lostGrant) <= healedAtMs + lostGrant.leaseMs + MARGIN_MS,
  );
