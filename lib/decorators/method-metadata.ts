import type { Method } from './replace-method.js';

/** What a decorator has left on a method, and the function that the method was then. */
export interface Kept<Value> {
  readonly value: Value;
  readonly method: Method;
}

/**
 * Keeps what a decorator says of a method with the class of the method as well: a decorator above may put a function
 * without metadata in its place.
 */
export function keepForMethod<Value>(
  key: symbol,
  { target, name, ...kept }: Kept<Value> & { readonly target: object; readonly name: string | symbol },
): void {
  Reflect.defineMetadata(key, [...keptFor<Value>(key, target, name), kept], target, name);
}

/** Not what a class above says: a method that overrides another without a decorator has none. */
export const keptFor = <Value>(key: symbol, owner: object, name: string | symbol): readonly Kept<Value>[] =>
  (Reflect.getOwnMetadata(key, owner, name) as readonly Kept<Value>[] | undefined) ?? [];
