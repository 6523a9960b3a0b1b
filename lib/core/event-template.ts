const UUID = /[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}/gi;
/** Part of a UUID, a ULID, a nanoid or a hash: long, and with a letter after a digit. `v2` and `report2026` are none. */
const ID_PART = /(?<![a-z\d])(?=[a-z]*\d+[a-z])[a-z\d]{6,}/i;
const WORD = /[\w-]+/g;
const DIGITS = /\d+/g;

/**
 * The key with `{id}` in place of ids and `{n}` in place of other digits: `order:42` becomes `order:{n}`. Events are
 * counted by it, so that metrics do not get one series for each order. Two kinds of keys may have the same template.
 */
export function templateOf(key: string): string {
  if (!ID_PART.test(key)) return key.replace(DIGITS, '{n}');
  return key.replace(UUID, '{id}').replace(WORD, (word) => {
    // What follows an id in the same word belongs to the id.
    const start = word.search(ID_PART);
    const text = start === -1 ? word : `${word.slice(0, start)}{id}`;
    return text.replace(DIGITS, '{n}');
  });
}
