import { inspect } from 'node:util';

/** Prints a lock in logs and in JSON with its public fields only. */
export abstract class PrintableLock {
  abstract readonly key: string;
  abstract readonly fencingToken: bigint;
  abstract remainingMs(): number;

  toJSON(): object {
    return { key: this.key, fencingToken: String(this.fencingToken), remainingMs: this.remainingMs() };
  }

  [inspect.custom](): object {
    return { key: this.key, fencingToken: this.fencingToken, remainingMs: this.remainingMs() };
  }
}

/**
 * Adds a `toJSON()` to an object, because `JSON.stringify` throws for bigints. Bigints become strings, dates become ISO
 * strings, and signals are omitted. The method is not enumerable, so comparisons and copies ignore it.
 */
export function withJson<T extends object>(value: T): T {
  return Object.defineProperty(value, 'toJSON', { value: fieldsAsJson, configurable: true, writable: true });
}

function fieldsAsJson(this: object): object {
  return Object.fromEntries(Object.entries(this).map(([name, field]) => [name, asJson(field)]));
}

function asJson(field: unknown): unknown {
  if (typeof field === 'bigint') return String(field);
  if (field instanceof AbortSignal) return undefined;
  if (Array.isArray(field)) return field.map(asJson);
  const { toJSON } = Object(field) as { toJSON?: unknown };
  return typeof toJSON === 'function' ? (toJSON.call(field) as unknown) : field;
}

/** The object or array that a text from a store stands for; `undefined` if it is none. */
export function parseObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
