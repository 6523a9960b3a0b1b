import { describe, expect, it } from 'vitest';
import type { Acquisition } from '../workers/history.js';
import { findOrphans } from './orphans.js';

const ask: Acquisition = { op: 'a', worker: 'w', key: 'key', leaseMs: 1_000, waitMs: 100, askedAtMs: 0 };
const [grant, line] = [{ key: 'key', what: 'grant' } as const, { key: 'key', what: 'line' } as const];

describe('what a store keeps when all have gone', () => {
  it('green: nothing, or what somebody had who was killed or had to close, for a while', () => {
    expect(findOrphans([], [ask], 0)).toEqual([]);
    expect(findOrphans([grant, line], [{ ...ask, killedAtMs: 5_000 }], 5_500)).toEqual([]);
    expect(findOrphans([grant, line], [{ ...ask, closedAtMs: 5_000 }], 5_500)).toEqual([]);
  });

  it('red: a grant or a place in line that nobody gave back', () => {
    expect(findOrphans([grant, line], [ask], 500)).toEqual([grant, line]);
  });

  it('red: more than that while', () => {
    expect(findOrphans([grant, line], [{ ...ask, killedAtMs: 0 }], 60_000)).toEqual([grant, line]);
  });

  it('green: what a store keeps for longer than its lease', () => {
    const killed = { ...ask, killedAtMs: 0 };
    expect(findOrphans([grant], [killed], 8_500, (leaseMs) => 3 * leaseMs)).toEqual([]);
    expect(findOrphans([grant], [killed], 9_500, (leaseMs) => 3 * leaseMs)).toEqual([grant]);
  });

  it('red: what never goes away', () => {
    const forever = { key: 'key', what: 'forever' } as const;
    expect(findOrphans([forever], [{ ...ask, killedAtMs: 0 }], 0)).toEqual([forever]);
  });
});
