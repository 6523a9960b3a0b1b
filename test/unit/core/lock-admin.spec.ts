import { expect, it } from 'vitest';
import { LockUnavailableError } from '../../../lib/core/errors.js';
import { lockFixture } from './lock-fixture.js';

it('inspect() returns the rest of a lease in whole ms, also on a store that measures in µs', async () => {
  const { backend, ours } = lockFixture();
  await ours.acquire('key');
  const inspect = backend.inspect.bind(backend);
  backend.inspect = async (key) => {
    const record = await inspect(key);
    return record && { ...record, remainingMs: 999.25 };
  };
  expect(await ours.inspect('key')).toMatchObject({ remainingMs: 1_000 });
});

it('a pause that fails is reported once the store has decided, since it could undo a later call until then', async () => {
  const { backend, clock, ours } = lockFixture();
  const lost = new Error('lost');
  backend.setPaused = () => new Promise((_, reject) => clock.after(8_000, () => reject(lost)));
  let outcome: unknown = 'pending';
  void ours.jobs.setPaused('job', true).catch((error: unknown) => (outcome = error));
  await clock.advance(7_900);
  expect(outcome).toBe('pending');
  await clock.advance(200);
  expect(outcome).toBeInstanceOf(LockUnavailableError);
});
