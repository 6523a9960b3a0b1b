import { expect, it } from 'vitest';
import type { LockHandle } from '../../../lib/core/leases/lock-handle.js';
import type { Locks } from '../../../lib/core/locks.js';
import type { Job } from '../../../lib/schedule/job.js';
import { isTimedOut, runWithTimeLimit } from '../../../lib/schedule/run-time-limit.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { stateOf } from '../core/lock-fixture.js';

/** A run of 50 ms at most that never ends, with a lease of 100 ms. */
function startHungRun({ isLost }: Pick<LockHandle, 'isLost'>) {
  const clock = new SettableClock();
  const controller = new AbortController();
  const lock = {
    signal: controller.signal,
    isLost,
    abort: (reason: Error) => controller.abort(reason),
  } as unknown as LockHandle;
  const runWithLock: Locks['runWithLock'] = async (_, work) => work();
  const locks = { clock, defaultLeaseMs: 100, runWithLock } as unknown as Locks;
  const job = { key: 'job', options: { maxRunMs: 50 } } as unknown as Job;
  const running = runWithTimeLimit({ locks, job, lock }, () => new Promise(() => undefined));
  return { clock, controller, running };
}

it('a run that the shutdown has aborted is not given up: the shutdown keeps its lock', async () => {
  const { clock, controller, running } = startHungRun({ isLost: false });
  controller.abort(new Error('shutting down'));
  await clock.advance(1_000);
  expect(await stateOf(running)).toBe('pending');
  expect(isTimedOut(controller.signal)).toBe(false);
});

it('a run that has lost its lock is given up', async () => {
  const { clock, controller, running } = startHungRun({ isLost: true });
  controller.abort(new Error('lost'));
  const failed = expect(running).rejects.toMatchObject({ name: 'TimeoutError' });
  await clock.advance(150);
  await failed;
  expect(isTimedOut(controller.signal)).toBe(false);
});
