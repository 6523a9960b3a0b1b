import { isDeepStrictEqual } from 'node:util';

/** Such as a zero date of MySQL. Two of them are unequal to `isDeepStrictEqual` in Node.js 20. */
const INVALID_DATE = Symbol('invalid date');

/** Whether two values are certainly the same. */
export const isSameValue = (one: unknown, other: unknown): boolean =>
  one === other || isDeepStrictEqual(comparableValue(one), comparableValue(other));

/**
 * A copy of a value that can later be compared with it by `isDeepStrictEqual`. An instance of a class may keep what it is in private
 * fields, or be changed in place, so it counts as unequal to everything, also to itself.
 */
export function comparableValue(value: unknown): unknown {
  if (typeof value === 'function') return Symbol('never equal');
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(comparableValue);
  if (value instanceof Date && Number.isNaN(value.getTime())) return INVALID_DATE;
  if (value instanceof Date || ArrayBuffer.isView(value)) return structuredClone(value);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return Symbol('never equal');
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, comparableValue(part)]));
}
