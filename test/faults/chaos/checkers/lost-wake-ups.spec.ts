import { describe, expect, it } from 'vitest';
import type { Acquisition, Hold } from '../workers/history.js';
import type { InjectedFault } from '../injected-fault.js';
import { buildHold, buildFault } from './sample-records.js';
import { findLostWakeUps } from './lost-wake-ups.js';

const waiter: Acquisition = {
  ...{ op: 'a', worker: 'w', key: 'key', leaseMs: 1_000, waitMs: 10_000, askedAtMs: 0 },
  ...{ answeredAtMs: 10_000, refused: 'timeout' },
};
const inVain = (others: readonly Acquisition[], faults: readonly InjectedFault[] = []) =>
  findLostWakeUps([waiter, ...others], { freeMs: 5_000, faults, stops: [] }).map(({ op }) => op);

const held = (told: Partial<Hold>): Acquisition => {
  const hold = buildHold({ op: 'b', fencingToken: 1n, fromMs: 1_000, untilMs: 2_000, ...told });
  return { ...waiter, op: 'b', answeredAtMs: hold.fromMs, refused: undefined, hold };
};

describe('nobody waits in vain for a key that is free', () => {
  it('red: nobody has had it for long', () => {
    expect(inVain([])).toEqual(['a']);
    expect(inVain([held({})])).toEqual(['a']);
    expect(inVain([held({ untilMs: 9_000, releasingAtMs: 2_000, released: 'ours' })])).toEqual(['a']);
  });

  it('red: a process was killed, which is nothing to others', () => {
    const strike = buildFault({ startedAtMs: 6_000, healedAtMs: 6_500, isInsideGuarantee: true });
    expect(inVain([], [{ ...strike, nemesis: 'process killed' }])).toEqual(['a']);
  });

  it('green: somebody had it not long ago, or may have had it', () => {
    expect(inVain([held({ untilMs: 6_000 })])).toEqual([]);
    expect(inVain([held({ untilMs: 4_500 })])).toEqual([]);
    expect(inVain([{ ...waiter, op: 'b', answeredAtMs: 4_500, refused: 'unavailable' }])).toEqual([]);
  });

  it('green: a dead process had it, and the store keeps it as long as its session', () => {
    const limits = { freeMs: 5_000, faults: [], stops: [] };
    const dead = held({ untilMs: 2_000 });
    expect(findLostWakeUps([waiter, dead], { ...limits, sessionMs: 2_000 })).toEqual([waiter]);
    expect(findLostWakeUps([waiter, dead], { ...limits, sessionMs: 4_000 })).toEqual([]);
  });

  it('green: something was wrong', () => {
    const strike = buildFault({ startedAtMs: 1_000, healedAtMs: 6_500, isInsideGuarantee: true });
    expect(inVain([], [strike])).toEqual([]);
  });

  it('green: he did not want to wait for so long', () => {
    expect(findLostWakeUps([{ ...waiter, waitMs: 4_000 }], { freeMs: 5_000, faults: [], stops: [] })).toEqual(
      [],
    );
  });
});
