// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Method = (this: any, ...args: any[]) => unknown;

/**
 * Puts another function in the place of a method, so that nobody notices: it has the old one's name, length and, by
 * its prototype, all the metadata that decorators below or above leave on either of them (routes, guards, `@Cron`).
 */
export function replaceMethod(descriptor: PropertyDescriptor, original: Method, replacement: Method): void {
  Object.defineProperty(replacement, 'name', { value: original.name, configurable: true });
  Object.defineProperty(replacement, 'length', { value: original.length, configurable: true });
  Object.setPrototypeOf(replacement, original);
  descriptor.value = replacement;
}
