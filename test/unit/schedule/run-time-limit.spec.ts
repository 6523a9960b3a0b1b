import { expect, it } from '@jest/globals';
import type { Lease } from '../../../lib/core/leases/lease.js';
import type { Locks } from '../../../lib/core/locks.js';
import type { Job } from '../../../lib/schedule/job.js';
import { isTimedOut, runWithTimeLimit } from '../../../lib/schedule/run-time-limit.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { stateOf } from '../core/lock-fixture.js';

it('a run whose signal has aborted for another reason is not given up: the shutdown keeps its lock', async () => {
  const clock = new SettableClock();
  const controller = new AbortController();
  const lease = {
    signal: controller.signal,
    abort: (reason: Error) => controller.abort(reason),
  } as unknown as Lease;
  const locks = { clock, defaultLeaseMs: 100 } as unknown as Locks;
  const job = { key: 'job', options: { maxRunMs: 50 } } as unknown as Job;
  const running = runWithTimeLimit({ locks, job, lease }, () => new Promise(() => undefined));
  controller.abort(new Error('shutting down'));
  await clock.advance(1_000);
  expect(await stateOf(running)).toBe('pending');
  expect(isTimedOut(controller.signal)).toBe(false);
});
