interface BoundedEntry<Key, Value> {
  readonly key: Key;
  readonly value: Value;
  readonly maxSize: number;
}

/** Sets an entry. If the map then has more than `maxSize` entries, removes the one that was added first. */
export function setBounded<Key, Value>(map: Map<Key, Value>, entry: BoundedEntry<Key, Value>): void {
  map.set(entry.key, entry.value);
  const [oldest] = map.keys();
  if (map.size > entry.maxSize) map.delete(oldest as Key);
}
