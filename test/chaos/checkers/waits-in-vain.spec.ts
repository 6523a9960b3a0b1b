import { describe, expect, it } from '@jest/globals';
import type { Ask, Hold } from '../history.js';
import type { Strike } from '../strike.js';
import { aHold, aStrike } from './a-hold.js';
import { waitsInVain } from './waits-in-vain.js';

const waiter: Ask = {
  ...{ op: 'a', worker: 'w', key: 'key', leaseMs: 1_000, waitMs: 10_000, askedAtMs: 0 },
  ...{ answeredAtMs: 10_000, refused: 'timeout' },
};
const inVain = (others: readonly Ask[], strikes: readonly Strike[] = []) =>
  waitsInVain([waiter, ...others], { freeMs: 5_000, strikes, stops: [] }).map(({ op }) => op);

const held = (told: Partial<Hold>): Ask => {
  const hold = aHold({ op: 'b', fencingToken: 1n, fromMs: 1_000, untilMs: 2_000, ...told });
  return { ...waiter, op: 'b', answeredAtMs: hold.fromMs, refused: undefined, hold };
};

describe('nobody waits in vain for a key that is free', () => {
  it('red: nobody has had it for long', () => {
    expect(inVain([])).toEqual(['a']);
    expect(inVain([held({})])).toEqual(['a']);
    expect(inVain([held({ untilMs: 9_000, releasingAtMs: 2_000, released: 'ours' })])).toEqual(['a']);
  });

  it('red: a process was killed, which is nothing to others', () => {
    const strike = aStrike({ struckAtMs: 6_000, healedAtMs: 6_500, isInsideGuarantee: true });
    expect(inVain([], [{ ...strike, nemesis: 'process killed' }])).toEqual(['a']);
  });

  it('green: somebody had it not long ago, or may have had it', () => {
    expect(inVain([held({ untilMs: 6_000 })])).toEqual([]);
    expect(inVain([held({ untilMs: 4_500 })])).toEqual([]);
    expect(inVain([{ ...waiter, op: 'b', answeredAtMs: 4_500, refused: 'unavailable' }])).toEqual([]);
  });

  it('green: something was wrong', () => {
    const strike = aStrike({ struckAtMs: 1_000, healedAtMs: 6_500, isInsideGuarantee: true });
    expect(inVain([], [strike])).toEqual([]);
  });

  it('green: he did not want to wait for so long', () => {
    expect(waitsInVain([{ ...waiter, waitMs: 4_000 }], { freeMs: 5_000, strikes: [], stops: [] })).toEqual(
      [],
    );
  });
});
