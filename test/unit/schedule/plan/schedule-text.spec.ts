import { expect, it } from 'vitest';
import { describeCron, describeInterval } from '../../../../lib/schedule/plan/schedule-text.js';

it.each([
  [{ timeZone: 'Asia/Tokyo' }, 'Asia/Tokyo'],
  [{ utcOffset: 60 }, 'utcOffset 60'],
  [{}, Intl.DateTimeFormat().resolvedOptions().timeZone],
])('the time zone of an expression is %j, or else that of the process', (given, timeZone) => {
  expect(describeCron({ cronTime: '0 3 * * *', ...given })).toEqual({ text: '0 3 * * *', timeZone });
});

it('an interval needs no time zone', () => {
  expect(describeInterval(500)).toEqual({ text: 'every 500 ms', timeZone: null });
});
