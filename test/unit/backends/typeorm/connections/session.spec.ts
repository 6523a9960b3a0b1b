import { describe, expect, it } from 'vitest';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { Timeout, retryWhileBusy } from '../../../../../lib/backends/typeorm/connections/session.js';

const busy = Object.assign(new Error('deadlock detected'), { code: '40P01' });

/** A step with one of these outcomes at each attempt. */
const stepWith = (...outcomes: (string | Error)[]) => {
  let attempts = 0;
  const step = async () => {
    const outcome = outcomes[Math.min(attempts++, outcomes.length - 1)];
    if (outcome instanceof Error) throw outcome;
    return outcome;
  };
  return { step, attempts: () => attempts };
};

describe('a step among other transactions', () => {
  it('is repeated after a deadlock', async () => {
    const timeout = new Timeout(5_000);
    expect(await retryWhileBusy(postgres, timeout, stepWith(busy, busy, 'done').step)).toBe('done');
  });

  it('is not repeated after any other error', async () => {
    const timeout = new Timeout(5_000);
    const { step, attempts } = stepWith(new Error('disk full'), 'done');
    await expect(retryWhileBusy(postgres, timeout, step)).rejects.toThrow('disk full');
    expect(attempts()).toBe(1);
  });

  it('is not repeated when the timeout has ended', async () => {
    const timeout = new Timeout(0);
    await expect(retryWhileBusy(postgres, timeout, stepWith(busy, 'done').step)).rejects.toBe(busy);
  });

  it('fails after many attempts', async () => {
    const timeout = new Timeout(60_000);
    const { step, attempts } = stepWith(busy);
    await expect(retryWhileBusy(postgres, timeout, step)).rejects.toBe(busy);
    expect(attempts()).toBe(100);
  });
});
