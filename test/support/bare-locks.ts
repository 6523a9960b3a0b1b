import type { LockBackend } from '../../lib/core/backend.js';
import { Events } from '../../lib/core/events.js';
import { Locks } from '../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../lib/core/options.js';

interface BareParts {
  readonly backend: LockBackend;
  readonly namespace: string;
  readonly instance?: string;
}

/** Locks without Nest, as another process would have them. */
export const bareLocks = ({ backend, namespace, instance = 'a spec' }: BareParts): Locks =>
  new Locks({
    ...{ backend, namespace, instance },
    defaults: BUILT_IN_LOCK_OPTIONS,
    events: new Events({ namespace, instance, backend: backend.name, module: 'default' }),
  });
