import { Events, type LockEventListeners, type LockEventName } from '../../../lib/core/events.js';
import { Locks } from '../../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../lib/core/options.js';
import { Elections } from '../../../lib/election/elections.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { ScriptedBackend } from '../scripted-backend.js';

const DEFAULT_EVENTS: readonly LockEventName[] = [
  'elected',
  'revoked',
  'leader-failed',
  'leader-overran',
  'unavailable',
  'lost',
];

/** Processes that take part in elections on one store, with a clock that the test controls. */
export function electionFixture({ eventNames = DEFAULT_EVENTS } = {}) {
  const clock = new SettableClock();
  const backend = new ScriptedBackend({ clock });
  const published: [LockEventName, Record<string, unknown>][] = [];
  const listeners = Object.fromEntries(
    eventNames.map((name) => [name, (message: Record<string, unknown>) => published.push([name, message])]),
  ) as LockEventListeners;
  const process = (instance: string) => {
    const locks = new Locks({
      backend,
      namespace: 'lock',
      instance,
      defaults: BUILT_IN_LOCK_OPTIONS,
      events: new Events({ namespace: 'lock', instance, backend: 'memory', module: 'default' }, listeners),
    });
    const elections = new Elections(locks);
    elections.start();
    return { locks, elections };
  };
  return {
    clock,
    backend,
    process,
    ours: process('ours'),
    theirs: process('theirs'),
    /** The messages of one event, in order. */
    messages: (wanted: LockEventName) =>
      published.filter(([name]) => name === wanted).map(([, message]) => message),
    isHeld: async (election: string) => (await backend.inspect(`lock/leader:${election}`)) !== null,
  };
}
