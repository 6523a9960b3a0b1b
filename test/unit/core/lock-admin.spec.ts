import { expect, it } from 'vitest';
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
