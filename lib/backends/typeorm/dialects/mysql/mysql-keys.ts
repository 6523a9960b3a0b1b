import type { AcquisitionId } from '../../../../core/backend.js';

/** Bytes, because text is sent in the connection's character set, which may lack some characters. */
export const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');

/** The order in which an UPDATE locks the rows. */
export const sortedByKey = <T extends AcquisitionId>(requests: readonly T[]): readonly T[] =>
  requests.length === 1 ? requests : [...requests].sort((a, b) => Buffer.compare(bytes(a.key), bytes(b.key)));

/** All keys, then each key with its holder; or one key and one holder. */
export function heldParametersOf(requests: readonly AcquisitionId[]): {
  readonly count: number;
  readonly values: readonly Buffer[];
} {
  const pairs = padToBucketSize(sortedByKey(requests)).map(
    ({ key, holder }) => [bytes(key), bytes(holder)] as const,
  );
  const keys = pairs.length === 1 ? [] : pairs.map(([key]) => key);
  return { count: pairs.length, values: [...keys, ...pairs.flat()] };
}

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
