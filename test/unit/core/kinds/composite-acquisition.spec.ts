import { expect, it } from 'vitest';
import { Events } from '../../../../lib/core/events.js';
import {
  CompositeAcquisition,
  type CompositeCall,
  type KindParts,
} from '../../../../lib/core/kinds/composite-acquisition.js';
import { SettableClock } from '../../../../lib/testing/settable-clock.js';

it('work that never ends is not waited for if the caller has given up before it', async () => {
  const caller = new AbortController();
  const reason = new Error('the caller has left');
  const source = { namespace: 'lock', instance: 'ours', backend: 'memory', module: 'default' };
  const parts = {
    clock: new SettableClock(),
    events: new Events(source),
    stopController: new AbortController(),
  };
  const call = { key: 'pdf', label: undefined, signal: caller.signal };
  const acquisition = new CompositeAcquisition(call as CompositeCall, parts as unknown as KindParts);
  const acquired = acquisition.run(async () => {
    caller.abort(reason);
    return acquisition.untilEnded(new Promise<null>(() => undefined));
  });
  await expect(acquired).rejects.toBe(reason);
});
