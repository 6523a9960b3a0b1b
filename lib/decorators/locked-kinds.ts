import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import type { AcquireOptions } from '../core/options.js';
import { type ProviderSource, findMethods } from './find-methods.js';

/** What `@Locked` stores about a method. */
export interface LockedMetadata {
  readonly location: string;
  /** The texts of the key; none if the key is a function. */
  readonly templates: readonly string[];
  readonly kind: 'plain' | 'with permits' | 'with a mode';
  readonly service: string | undefined;
}

export const LOCKED_METADATA = Symbol.for('nestjs-distributed-lock:locked');

export const kindOf = ({ permits, mode }: AcquireOptions): LockedMetadata['kind'] => {
  if (permits !== undefined) return 'with permits';
  return mode === undefined ? 'plain' : 'with a mode';
};

/**
 * Compares the templates as they are written: at boot, nothing is known of the keys that they will make.
 *
 * @throws LockConfigError if two methods use one template in two kinds, which do not exclude each other
 */
export function checkLockedKinds(
  discovery: ProviderSource,
  { token, moduleName }: { readonly token: symbol; readonly moduleName: string | undefined },
): void {
  const known = new Map<string, LockedMetadata>();
  for (const { metadata } of findMethods<LockedMetadata>(discovery, { token, key: LOCKED_METADATA })) {
    for (const { value } of metadata) {
      if (value.service !== moduleName) continue;
      for (const template of value.templates) {
        const other = known.get(template) ?? value;
        if (other.kind !== value.kind) throw twoKindsError(template, other, value);
        known.set(template, value);
      }
    }
  }
}

const twoKindsError = (template: string, one: LockedMetadata, other: LockedMetadata) =>
  new LockConfigError(
    `Expected all methods with the key ${formatValue(template)} to be of one kind, got ${one.location} (${one.kind}) and ` +
      `${other.location} (${other.kind}): they would not exclude each other. Pass permits or a mode everywhere or ` +
      `nowhere, or use another key.`,
  );
