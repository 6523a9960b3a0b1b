import { describe, expect, it } from '@jest/globals';
import type { Ask } from '../history.js';
import { orphansOf } from './orphans.js';

const ask: Ask = { op: 'a', worker: 'w', key: 'key', leaseMs: 1_000, waitMs: 100, askedAtMs: 0 };
const [grant, line] = [{ key: 'key', what: 'grant' } as const, { key: 'key', what: 'line' } as const];

describe('what a store keeps when all have gone', () => {
  it('green: nothing, or what somebody had who was killed or had to close, for a while', () => {
    expect(orphansOf([], [ask], 0)).toEqual([]);
    expect(orphansOf([grant, line], [{ ...ask, killedAtMs: 5_000 }], 5_500)).toEqual([]);
    expect(orphansOf([grant, line], [{ ...ask, closedAtMs: 5_000 }], 5_500)).toEqual([]);
  });

  it('red: a grant or a place in line that nobody gave back', () => {
    expect(orphansOf([grant, line], [ask], 500)).toEqual([grant, line]);
  });

  it('red: more than that while', () => {
    expect(orphansOf([grant, line], [{ ...ask, killedAtMs: 0 }], 60_000)).toEqual([grant, line]);
  });

  it('red: what never goes away', () => {
    const forever = { key: 'key', what: 'forever' } as const;
    expect(orphansOf([forever], [{ ...ask, killedAtMs: 0 }], 0)).toEqual([forever]);
  });
});
