/**
 * Repeats the last item until there are as many as in one of a few sizes, so that a statement which names each item
 * has few texts, and the database may keep all of them prepared.
 */
export function padToBucketSize<T>(items: readonly T[]): readonly T[] {
  const last = items.at(-1);
  if (last === undefined) return items;
  return [...items, ...Array<T>(bucketSizeFor(items.length) - items.length).fill(last)];
}

/** 1, 2, 3, 4, 6, 8, 12, 16, 24 …: never more than half too many. */
function bucketSizeFor(count: number): number {
  const power = 2 ** Math.ceil(Math.log2(count));
  return count > 2 && count <= (power * 3) / 4 ? (power * 3) / 4 : power;
}
