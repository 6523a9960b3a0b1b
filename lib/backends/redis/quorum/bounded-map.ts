interface BoundedEntry<Key, Value> {
  readonly key: Key;
  readonly value: Value;
  readonly maxSize: number;
}

/** Adds to what may not grow without end: the oldest makes room. */
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
