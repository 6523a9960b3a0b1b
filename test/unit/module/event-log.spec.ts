import { expect, it } from 'vitest';
import { LockLostError } from '../../../lib/core/errors.js';
import { systemClock } from '../../../lib/core/clock.js';
import { createLogListeners } from '../../../lib/module/event-log.js';

it('a key with control characters is logged on one line', () => {
  const lines: string[] = [];
  const log = (text: unknown) => void lines.push(String(text));
  const listeners = createLogListeners({ log, warn: log, error: log }, systemClock);
  const key = 'a\nLOG admin logged in\u001b[31m\u202e';
  listeners.lost?.({ key, error: new LockLostError(`Lost "${key}"`, { key }) } as never);
  expect(lines).toEqual(['Lost "a\\nLOG admin logged in\\u{1b}[31m\\u{202e}"']);
});
