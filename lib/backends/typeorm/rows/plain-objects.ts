import type { ObjectLiteral } from 'typeorm';

/** Builds `{ a: { b: value } }` for `a.b`. */
export const objectAtPath = (path: string, value: unknown): ObjectLiteral =>
  path.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), value) as ObjectLiteral;

/** Merges both, also within embedded objects. `other` wins. */
export function mergeDeep(one: object, other: object): ObjectLiteral {
  const both: ObjectLiteral = { ...one };
  for (const [name, value] of Object.entries(other) as [string, unknown][]) {
    const first: unknown = both[name];
    both[name] = isObject(first) && isPlainObject(value) ? mergeDeep(first, value) : value;
  }
  return both;
}

export const isObject = (value: unknown): value is ObjectLiteral =>
  typeof value === 'object' && value !== null;

/** Whether the value is a plain object, and not a date, bytes or an operator. */
export const isPlainObject = (value: unknown): value is ObjectLiteral =>
  isObject(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);
