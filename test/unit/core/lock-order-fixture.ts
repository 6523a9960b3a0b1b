import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import type { LockBackend } from '../../../lib/core/backend.js';
import { type LockEventMessage, Events } from '../../../lib/core/events.js';
import type { LockOrderMode } from '../../../lib/core/lock-order.js';
import { Locks } from '../../../lib/core/locks.js';
import { type AcquireOptions, BUILT_IN_LOCK_OPTIONS } from '../../../lib/core/options.js';

interface OrderSetting {
  readonly lockOrder?: LockOrderMode;
  readonly backend?: LockBackend;
}

/** A key, or a key with its options. */
export type Step = string | readonly [key: string, options: AcquireOptions];

/** One process that checks the order of its locks. */
export function orderFixture({ lockOrder = 'warn', backend = new MemoryBackend() }: OrderSetting = {}) {
  const source = { namespace: 'lock', instance: 'ours', backend: 'memory', module: 'default' };
  const inversions: LockEventMessage<'order-inverted'>[] = [];
  const events = new Events(source, { 'order-inverted': (message) => void inversions.push(message) });
  const locks = new Locks({ ...source, backend, defaults: BUILT_IN_LOCK_OPTIONS, events, lockOrder });
  return {
    backend,
    locks,
    inversions,
    /** Acquires the locks one inside the other. */
    nest: ([step, ...inner]: readonly Step[], work: () => unknown = () => undefined): Promise<void> =>
      nest(locks, step, inner, work),
    /** The recorded edges, as `held>wanted`. */
    edges: () => (locks.lockOrder?.edges ?? []).map(({ from, to }) => `${from}>${to}`),
  };
}

async function nest(
  locks: Locks,
  step: Step | undefined,
  [next, ...inner]: readonly Step[],
  work: () => unknown,
): Promise<void> {
  if (step === undefined) {
    await work();
    return;
  }
  const [key, options] = typeof step === 'string' ? [step, {}] : step;
  await locks.withLock(key, options, () => nest(locks, next, inner, work));
}
