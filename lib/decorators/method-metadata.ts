import type { Method } from './method-replacement.js';

/** What a decorator has left on a method, and the function that the method was then. */
export interface MethodMetadata<Value> {
  readonly value: Value;
  readonly method: Method;
}

/**
 * Keeps what a decorator says of a method with the class of the method as well: a decorator above may put a function
 * without metadata in its place.
 */
export function addMethodMetadata<Value>(
  key: symbol,
  {
    target,
    name,
    ...metadata
  }: MethodMetadata<Value> & { readonly target: object; readonly name: string | symbol },
): void {
  Reflect.defineMetadata(key, [...readMethodMetadata<Value>(key, target, name), metadata], target, name);
}

/** Not what a class above says: a method that overrides another without a decorator has none. */
export const readMethodMetadata = <Value>(
  key: symbol,
  owner: object,
  name: string | symbol,
): readonly MethodMetadata<Value>[] =>
  (Reflect.getOwnMetadata(key, owner, name) as readonly MethodMetadata<Value>[] | undefined) ?? [];
