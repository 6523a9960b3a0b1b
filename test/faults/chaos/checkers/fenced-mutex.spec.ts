import { describe, expect, it } from 'vitest';
import type { Hold } from '../workers/history.js';
import { buildHold, buildFault } from './sample-records.js';
import { checkMutex } from './fenced-mutex.js';

const first = buildHold({
  op: 'a',
  fencingToken: 1n,
  fromMs: 10,
  untilMs: 1_000,
  releasingAtMs: 100,
  releasedAtMs: 110,
});
const second = buildHold({ op: 'b', fencingToken: 2n, askedAtMs: 20, fromMs: 120, untilMs: 1_100 });
const brokenOf = (...holds: Hold[]) => checkMutex(holds, []).broken;

describe('a key behaves as one lock', () => {
  it('green: one after the other', () => {
    expect(brokenOf(first, second)).toEqual([]);
  });

  it('green: the next one has it before the first one has heard that it was given back', () => {
    expect(brokenOf(first, { ...second, fromMs: 105 })).toEqual([]);
  });

  it('green: it is taken over when it has run out', () => {
    const lapsed = buildHold({ op: 'a', fencingToken: 1n, fromMs: 10, untilMs: 100 });
    expect(brokenOf(lapsed, second)).toEqual([]);
  });

  it('red: it is taken over before that, also from one who was killed', () => {
    const held = buildHold({ op: 'a', fencingToken: 1n, fromMs: 10, untilMs: 130, killedAtMs: 50 });
    expect(brokenOf(held, second)).toEqual(['key']);
  });

  it('red: a fencing token that does not grow', () => {
    expect(brokenOf(first, { ...second, askedAtMs: 115, fencingToken: 1n })).toEqual(['key']);
  });

  it('red: given back by one who never had it since', () => {
    const third = buildHold({ op: 'c', fencingToken: 3n, askedAtMs: 121, fromMs: 130, untilMs: 1_200 });
    expect(brokenOf(first, second, third)).toEqual(['key']);
  });

  it('leaves out what a strike outside of the guarantee has met', () => {
    const struck = buildFault({ startedAtMs: 50, healedAtMs: 60, isInsideGuarantee: false });
    expect(checkMutex([first], [struck])).toEqual({ broken: [], checked: 0, heldOnce: 0, leftOut: 1 });
    const killed = buildHold({ op: 'a', fencingToken: 1n, fromMs: 10, untilMs: 130, killedAtMs: 20 });
    expect(checkMutex([killed, second], [struck])).toEqual({
      broken: [],
      checked: 0,
      heldOnce: 0,
      leftOut: 1,
    });
  });
});
