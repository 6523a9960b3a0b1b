/** Divides the items into lists of at most this size. */
export function chunksOf<T>(items: readonly T[], size: number): (readonly T[])[] {
  const chunks: T[][] = [];
  for (let from = 0; from < items.length; from += size) chunks.push(items.slice(from, from + size));
  return chunks;
}
