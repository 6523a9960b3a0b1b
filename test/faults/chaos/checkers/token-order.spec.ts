import { describe, expect, it } from 'vitest';
import { buildHold } from './sample-records.js';
import { findTokenOrderViolations } from './token-order.js';

const before = buildHold({ op: 'a', fencingToken: 5n, fromMs: 10, untilMs: 20 });
const after = buildHold({ op: 'b', fencingToken: 6n, askedAtMs: 11, fromMs: 30, untilMs: 40 });

describe('fencing tokens grow in the order of real time', () => {
  it('green: who asks later gets a larger one', () => {
    expect(findTokenOrderViolations([after, before])).toEqual([]);
  });

  it('green: who asked before the other was granted may get a smaller one', () => {
    expect(findTokenOrderViolations([before, { ...after, fencingToken: 4n, askedAtMs: 9 }])).toEqual([]);
  });

  it('green: keys do not know of each other', () => {
    expect(findTokenOrderViolations([before, { ...after, key: 'other', fencingToken: 5n }])).toEqual([]);
  });

  it('red: who asked after the grant got a smaller one', () => {
    const smaller = { ...after, fencingToken: 4n };
    expect(findTokenOrderViolations([before, smaller])).toEqual([{ key: 'key', before, after: smaller }]);
  });

  it('red: two have the same', () => {
    expect(findTokenOrderViolations([before, { ...after, fencingToken: 5n, askedAtMs: 0 }])).toHaveLength(1);
  });

  it('red: smaller than one of long ago, though larger than the last', () => {
    const low = buildHold({ op: 'c', fencingToken: 1n, askedAtMs: 0, fromMs: 12, untilMs: 13 });
    expect(
      findTokenOrderViolations([before, low, { ...after, askedAtMs: 20, fencingToken: 2n }]),
    ).toHaveLength(1);
  });
});
