import { expect, it, vi } from 'vitest';
import { Events } from '../../../lib/core/events.js';

it('a listener that throws does not stop what it listens to, and its error is not lost', () => {
  const later = vi.spyOn(process, 'nextTick').mockImplementation(() => undefined);
  const events = new Events(
    { namespace: 'lock', instance: 'ours', backend: 'memory', module: 'default' },
    {
      timeout: () => {
        throw new Error('a bad listener');
      },
    },
  );
  events.emit('timeout', { key: 'key', waitedMs: 1 });
  const thrower = later.mock.calls[0]![0] as () => void;
  later.mockRestore();
  expect(thrower).toThrow('a bad listener');
});
