import { inspect } from 'node:util';

/** A lock in a log or in JSON: what names it, and nothing of its inside. */
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
 * Gives an object a `toJSON()`, because `JSON.stringify` refuses bigints: they become texts, dates ISO texts, and a signal is
 * left out. The method is not enumerable, so it is no field to a comparison or a copy.
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
