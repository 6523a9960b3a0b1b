import { inspect } from 'node:util';

/** How a value that came looks in an error message: short, on one line, with its type. */
export function shown(value: unknown): string {
  if (typeof value === 'string' && value.length > 40) return `a string of ${value.length} characters`;
  if (typeof value === 'function') return 'a function';
  return inspect(value, { depth: 0, breakLength: Infinity, maxStringLength: 40 });
}

/** What a thrown thing says. */
export const reasonOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause));
