import { compileKeyTemplate } from './key-template.js';

/**
 * Returns the key that `@Locked(template)` locks for a call with these arguments. Use it with `LockService` where a
 * method with this template locks the same thing: the template escapes `:` and `%` in values, and `order:${id}` does not.
 *
 * @throws LockConfigError if the template is malformed or a placeholder has no value
 */
export const lockKey = (template: string, ...args: readonly unknown[]): string =>
  compileKeyTemplate(template, 'lockKey()', args.length)(args);
