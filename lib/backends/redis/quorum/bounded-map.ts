interface BoundedEntry<Key, Value> {
  readonly key: Key;
  readonly value: Value;
  readonly maxSize: number;
}

/** Sets an entry. If the map then has more than `maxSize` entries, removes the one that was added first. */
export function setBounded<Key, Value>(
  map: Map<Key, Value>,
  { key, value, maxSize }: BoundedEntry<Key, Value>,
): void {
  map.set(key, value);
  if (map.size <= maxSize) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    break;
  }
}
