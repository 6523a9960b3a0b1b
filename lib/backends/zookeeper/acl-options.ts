import type { OptionErrors } from '../../core/option-errors.js';
import { formatValue } from '../../core/format.js';
import type { AclEntry } from './wire/operations.js';

/** One entry of the ACL of a node. */
export interface ZookeeperAcl {
  /** `world`, `auth`, `digest`, `ip`, `x509`, … */
  scheme: string;
  /** `anyone` for `world`, an empty text for `auth`, and `user:hash` for `digest`. */
  id: string;
  /**
   * Letters of `cdrwa`: create, delete, read, write, admin. The backend needs the first four.
   *
   * @default 'cdrwa'
   */
  permissions?: string;
}

const BITS: Readonly<Record<string, number>> = { r: 1, w: 2, c: 4, d: 8, a: 16 };
const PERMISSIONS = /^[cdrwa]+$/;
const ALL = 'cdrwa';

export function collectAclErrors(errors: OptionErrors, acl: unknown): void {
  if (acl === undefined) return;
  if (!Array.isArray(acl) || acl.length === 0) {
    errors.add(`expected options.acl to be a list of { scheme, id, permissions }, got ${formatValue(acl)}`);
    return;
  }
  for (const [index, entry] of acl.entries()) {
    const path = `options.acl[${index}]`;
    const { scheme, id, permissions } = errors.object(path, entry ?? null, ['scheme', 'id', 'permissions']);
    errors.requiredText(`${path}.scheme`, scheme, { max: 255 });
    // It may have the hash of a password.
    if (typeof id !== 'string') errors.add(`expected ${path}.id to be a text, got ${formatValue(id)}`);
    const isValid = typeof permissions === 'string' && PERMISSIONS.test(permissions);
    errors.expect(`${path}.permissions`, permissions, 'some of the letters cdrwa', isValid);
  }
}

/** Without an ACL, the nodes are for the user alone; without a user, for everybody. */
export function resolveAcl(acl: readonly ZookeeperAcl[] | undefined, auth: unknown): AclEntry[] {
  const entries: readonly ZookeeperAcl[] = acl ?? [
    auth === undefined ? { scheme: 'world', id: 'anyone' } : { scheme: 'auth', id: '' },
  ];
  return entries.map(({ scheme, id, permissions = ALL }) => ({
    ...{ scheme, id },
    permissions: [...new Set(permissions)].reduce((sum, letter) => sum + (BITS[letter] ?? 0), 0),
  }));
}
