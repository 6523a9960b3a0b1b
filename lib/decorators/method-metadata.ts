import type { Method } from './method-replacement.js';

/** The metadata that a decorator has stored, and the function that was the method at that time. */
export interface MethodMetadata<Value> {
  readonly value: Value;
  readonly method: Method;
}

/**
 * Stores the metadata of a method on its class as well. A decorator above may replace the method by a function without
 * metadata.
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

/** Reads the metadata of this class only: a method that overrides a decorated one without a decorator has none. */
export const readMethodMetadata = <Value>(
  key: symbol,
  owner: object,
  name: string | symbol,
): readonly MethodMetadata<Value>[] =>
  (Reflect.getOwnMetadata(key, owner, name) as readonly MethodMetadata<Value>[] | undefined) ?? [];
