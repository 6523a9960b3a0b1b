interface Addition<Key, Value> {
  readonly key: Key;
  readonly value: Value;
  readonly most: number;
}

/** Adds to what may not grow without end: the oldest makes room. */
export function addTo<Key, Value>(map: Map<Key, Value>, { key, value, most }: Addition<Key, Value>): void {
  map.set(key, value);
  if (map.size <= most) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    break;
  }
}
