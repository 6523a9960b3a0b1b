import type { LockBackend } from '../../../lib/core/backend.js';
import { Events, type LockEventName } from '../../../lib/core/events.js';
import { Locks } from '../../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../lib/core/options.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { ScriptedBackend } from '../scripted-backend.js';

const EVENTS: readonly LockEventName[] = [
  'acquired',
  'contended',
  'timeout',
  'released',
  'renewed',
  'renewal-failed',
  'stalled',
  'lost',
  'unavailable',
  'shutdown',
];

/** One process with locks on this store. */
export const locksOn = (backend: LockBackend, instance = 'ours') =>
  new Locks({
    backend,
    namespace: 'lock',
    instance,
    defaults: BUILT_IN_LOCK_OPTIONS,
    events: new Events({ namespace: 'lock', instance, backend: 'memory', module: 'default' }),
  });

/** Two processes with locks on one store, in time that the test turns. */
export function lockFixture() {
  const clock = new SettableClock();
  const backend = new ScriptedBackend({ clock });
  const events: [LockEventName, Record<string, unknown>][] = [];
  const listeners = Object.fromEntries(
    EVENTS.map((name) => [name, (message: Record<string, unknown>) => events.push([name, message])]),
  );
  const process = (instance: string) =>
    new Locks({
      backend,
      namespace: 'lock',
      instance,
      defaults: BUILT_IN_LOCK_OPTIONS,
      events: new Events({ namespace: 'lock', instance, backend: 'memory', module: 'default' }, listeners),
    });
  return {
    clock,
    backend,
    ours: process('ours'),
    theirs: process('theirs'),
    another: () => process('another'),
    /** The names of what was published, in order. */
    eventNames: () => events.map(([name]) => name),
    /** The first message of this event, or a later one. */
    message: (wanted: LockEventName, index = 0) => events.filter(([name]) => name === wanted)[index]?.[1],
    isHeld: async (key: string) => (await backend.inspect(`lock:${key}`)) !== null,
  };
}

/** What the promise came to so far. */
export async function stateOf(promise: Promise<unknown>): Promise<'pending' | 'fulfilled' | 'rejected'> {
  const states = await Promise.race([
    promise.then(
      () => 'fulfilled' as const,
      () => 'rejected' as const,
    ),
    new Promise<'pending'>((resolve) => setImmediate(() => resolve('pending'))),
  ]);
  return states;
}
