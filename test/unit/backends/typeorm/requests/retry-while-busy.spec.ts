import { describe, expect, it } from '@jest/globals';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { retryWhileBusy } from '../../../../../lib/backends/typeorm/requests/retry-while-busy.js';
import { Timeout } from '../../../../../lib/backends/typeorm/requests/timeout.js';

const busy = Object.assign(new Error('deadlock detected'), { code: '40P01' });

/** A step that meets one of these at each try. */
const meeting = (...outcomes: (string | Error)[]) => {
  let tries = 0;
  const step = async () => {
    const outcome = outcomes[Math.min(tries++, outcomes.length - 1)];
    if (outcome instanceof Error) throw outcome;
    return outcome;
  };
  return { step, tries: () => tries };
};

describe('a step among others', () => {
  it('is taken again after a deadlock', async () => {
    using deadline = new Timeout(5_000);
    expect(await retryWhileBusy(postgres, deadline, meeting(busy, busy, 'done').step)).toBe('done');
  });

  it('is not taken again after any other error', async () => {
    using deadline = new Timeout(5_000);
    const { step, tries } = meeting(new Error('disk full'), 'done');
    await expect(retryWhileBusy(postgres, deadline, step)).rejects.toThrow('disk full');
    expect(tries()).toBe(1);
  });

  it('is not taken again when there is no time for the answer', async () => {
    using deadline = new Timeout(0);
    await expect(retryWhileBusy(postgres, deadline, meeting(busy, 'done').step)).rejects.toBe(busy);
  });

  it('is given up after many tries', async () => {
    using deadline = new Timeout(60_000);
    const { step, tries } = meeting(busy);
    await expect(retryWhileBusy(postgres, deadline, step)).rejects.toBe(busy);
    expect(tries()).toBe(100);
  });
});
