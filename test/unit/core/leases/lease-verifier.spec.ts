import { describe, expect, it } from 'vitest';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TimerWheel } from '../../../../lib/core/timer-wheel.js';
import type { RenewResult } from '../../../../lib/core/backend-results.js';
import { unknownResult } from '../../../../lib/core/unknown-result.js';
import { momentOf } from '../../../../lib/core/clock.js';
import { Grant } from '../../../../lib/core/leases/grant.js';
import { LeaseVerifier } from '../../../../lib/core/leases/lease-verifier.js';
import { SettableClock } from '../../../../lib/testing/settable-clock.js';

/** Locks that were held when the wall clock was set. */
function doubtful(count: number) {
  const clock = new SettableClock();
  const grantOf = (key: string) => {
    const request = { key, holder: key, leaseMs: 60_000, instance: 'spec' };
    const granted = { kind: 'granted', fencingToken: 1n } as const;
    return new Grant({ key, request, granted, sentAt: momentOf(clock), latestStoreEndMs: 60_000 }, clock);
  };
  const asked: string[] = [];
  const heldLockOf = (key: string) => ({
    grant: grantOf(key),
    verifyAtStore: () => {
      asked.push(key);
      return answered;
    },
  });
  const held = Array.from({ length: count }, (_, index) => heldLockOf(String(index)));
  let answer!: (answer: RenewResult) => void;
  const answered = new Promise<RenewResult>((resolve) => (answer = resolve));
  let looks = 0;
  const verifier = new LeaseVerifier({
    clock,
    timerWheel: new TimerWheel(clock),
    heldLocks: {
      [Symbol.iterator]: () => {
        looks += 1;
        return held[Symbol.iterator]();
      },
    },
  });
  const setWall = () => clock.setWall(clock.wallMs() + 5_000);
  const readAll = () => held.forEach((lock) => verifier.onClocksDisagree(lock));
  setWall();
  return { held, asked, answer, heldLockOf, readAll, setWall, looks: () => looks };
}

describe('reads of locks in doubt', () => {
  it('check all held locks once until the store has answered', () => {
    const { asked, readAll, looks } = doubtful(100);
    readAll();
    readAll();
    expect(looks()).toBe(1);
    expect(asked).toHaveLength(100);
  });

  it('check them again after another step of the clock', () => {
    const { asked, readAll, looks, setWall } = doubtful(100);
    readAll();
    setWall();
    readAll();
    expect(looks()).toBe(2);
    expect(asked).toHaveLength(200);
  });

  it('verify a lock that was granted meanwhile', () => {
    const { asked, held, heldLockOf, readAll, setWall } = doubtful(1);
    const late = heldLockOf('late');
    setWall();
    readAll();
    held.push(late);
    readAll();
    expect(asked).toEqual(['0', 'late']);
  });

  it('pause after the store did not answer', async () => {
    const { answer, asked, readAll, looks } = doubtful(2);
    readAll();
    answer(unknownResult(new Error('away')));
    await nextTurn();
    readAll();
    expect(looks()).toBe(1);
    expect(asked).toHaveLength(2);
  });
});
