// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Method = (this: any, ...args: any[]) => unknown;

/**
 * Replaces a method by another function that looks the same to Nest: it has the original's name and length. The original is its
 * prototype, so it inherits all metadata that decorators store on the original (routes, guards, `@Cron`).
 */
export function replaceMethod(descriptor: PropertyDescriptor, original: Method, replacement: Method): void {
  Object.defineProperty(replacement, 'name', { value: original.name, configurable: true });
  Object.defineProperty(replacement, 'length', { value: original.length, configurable: true });
  Object.setPrototypeOf(replacement, original);
  descriptor.value = replacement;
}
