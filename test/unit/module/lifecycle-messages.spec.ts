import { expect, it } from 'vitest';
import { missingSchedulerWarning } from '../../../lib/module/lifecycle-messages.js';

it.each([
  [['Jobs.nightly'], /does not run its job by itself: Jobs\.nightly\./],
  [['a', 'b'], /runs none of its 2 jobs by itself: a, b\./],
])('names the jobs that nothing fires: %j', (keys, text) => {
  expect(missingSchedulerWarning(keys)).toMatch(text);
});
