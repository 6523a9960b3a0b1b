import type { Hold, ListName } from '../workers/history.js';

export interface SetVerdict {
  readonly acknowledged: number;
  /** Acknowledged, and not there in the end. */
  readonly lost: readonly string[];
  /** There more than once. */
  readonly duplicated: readonly string[];
}

/** Each item that was added under a lock, and acknowledged, is there exactly once; others at most once. */
export function checkSet(
  holds: readonly Hold[],
  name: ListName,
  lists: Iterable<readonly string[]>,
): SetVerdict {
  const acknowledged = holds.flatMap(({ added }) => added[name]);
  const counts = new Map<string, number>();
  for (const list of lists) for (const item of list) counts.set(item, (counts.get(item) ?? 0) + 1);
  return {
    acknowledged: acknowledged.length,
    lost: acknowledged.filter((item) => !counts.has(item)),
    duplicated: [...counts].filter(([, count]) => count > 1).map(([item]) => item),
  };
}
