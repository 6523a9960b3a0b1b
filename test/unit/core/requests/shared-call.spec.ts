import { expect, it } from 'vitest';
import { delay } from '../../../../lib/core/real-timers.js';
import { SharedCall } from '../../../../lib/core/requests/shared-call.js';
import { StoreTimeoutError } from '../../../../lib/core/requests/store-timeout.js';

it('is made once for all who need it at the same time', async () => {
  let calls = 0;
  const call = new SharedCall(() => {
    calls += 1;
    return delay(5);
  });
  await Promise.all([call.run(10_000), call.run(10_000)]);
  expect(calls).toBe(1);
  await call.run(10_000);
  expect(calls).toBe(2);
});

it('that fails for a caller with little time is made again for one with more', async () => {
  const times: number[] = [];
  const call = new SharedCall(async (timeoutMs) => {
    times.push(timeoutMs);
    if (times.length > 1) return;
    await delay(timeoutMs);
    throw new StoreTimeoutError(timeoutMs);
  });
  const [short, long] = await Promise.allSettled([call.run(20), call.run(10_000)]);
  expect(short.status).toBe('rejected');
  expect(long.status).toBe('fulfilled');
  expect(times).toHaveLength(2);
});

it('that fails for another reason fails for all', async () => {
  const call = new SharedCall(() => Promise.reject(new Error('refused')));
  const calls = await Promise.allSettled([call.run(10_000), call.run(10_000)]);
  expect(calls.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
});

it('that never ends keeps nobody for longer than its time', async () => {
  const call = new SharedCall(() => new Promise(() => undefined));
  const calls = [call.run(20), call.run(40)];
  for (const one of calls) await expect(one).rejects.toThrow(StoreTimeoutError);
});
