/**
 * Repeats the last item until the list has one of a few sizes. A statement with a parameter for each item then has few
 * different texts, and the database can keep all of them prepared.
 */
export function padToBucketSize<T>(items: readonly T[]): readonly T[] {
  const last = items.at(-1);
  if (last === undefined) return items;
  return [...items, ...Array<T>(bucketSizeFor(items.length) - items.length).fill(last)];
}

/** 1, 2, 3, 4, 6, 8, 12, 16, 24 …: at most half as many again as needed. */
function bucketSizeFor(count: number): number {
  const power = 2 ** Math.ceil(Math.log2(count));
  return count > 2 && count <= (power * 3) / 4 ? (power * 3) / 4 : power;
}
