import { describe, expect, it } from 'vitest';
import { buildHold, buildFault } from './sample-records.js';
import { findOverlaps } from './disjoint-intervals.js';

const earlier = buildHold({ op: 'a', fencingToken: 1n, fromMs: 0, untilMs: 1_000 });
const later = buildHold({ op: 'b', fencingToken: 2n, fromMs: 900, untilMs: 1_900 });

describe('locks of one key are valid one after the other', () => {
  it('green: the next one begins when the one before has run out, was given back, lost, or its holder killed', () => {
    const ends = [{ untilMs: 899 }, { releasingAtMs: 899 }, { lostAtMs: 899 }, { killedAtMs: 899 }];
    for (const end of ends) expect(findOverlaps([{ ...earlier, ...end }, later], [])).toEqual([]);
  });

  it('green: on different keys', () => {
    expect(findOverlaps([earlier, { ...later, key: 'other' }], [])).toEqual([]);
  });

  it('green: what was over when it came', () => {
    expect(findOverlaps([earlier, { ...later, untilMs: 900 }], [])).toEqual([]);
  });

  it('red: two are valid at the same time', () => {
    expect(findOverlaps([later, earlier], [])).toMatchObject([
      { earlier, later, byMs: 100, isExcused: false },
    ]);
  });

  it('red: behind one that is short stands one that is long', () => {
    const short = buildHold({ op: 'c', fencingToken: 3n, fromMs: 10, untilMs: 20 });
    expect(findOverlaps([earlier, short, later], [])).toHaveLength(2);
  });

  it('red: isValid() says yes after the end', () => {
    const over = { ...earlier, untilMs: 500, lastValidAtMs: 950 };
    expect(findOverlaps([over, later], [])).toHaveLength(1);
  });

  it('a strike outside of the guarantee excuses what it may have made forgotten', () => {
    const struck = buildFault({ startedAtMs: 800, healedAtMs: 850, isInsideGuarantee: false });
    expect(findOverlaps([earlier, later], [struck])).toMatchObject([{ isExcused: true }]);
  });

  it('it excuses also what callers of one process have had in turn since, from a grant that was forgotten', () => {
    const struck = buildFault({ startedAtMs: 100, healedAtMs: 150, isInsideGuarantee: false });
    const passedOn = buildHold({ op: 'c', worker: 'a', fencingToken: 2n, fromMs: 500, untilMs: 1_000 });
    const first = { ...earlier, releasingAtMs: 500 };
    const other = { ...later, fromMs: 600, askedAtMs: 600, fencingToken: 9n };
    expect(findOverlaps([first, passedOn, other], [struck])).toMatchObject([{ isExcused: true }]);
    const ofAnother = { ...passedOn, worker: 'c' };
    expect(findOverlaps([first, ofAnother, other], [struck])).toMatchObject([{ isExcused: false }]);
  });

  it('it does not excuse what was granted before, what was granted long after, or what does not end', () => {
    const strikes = [
      buildFault({ startedAtMs: 950, healedAtMs: 960, isInsideGuarantee: false }),
      buildFault({ startedAtMs: -9_000, healedAtMs: -8_000, isInsideGuarantee: false }),
    ];
    expect(findOverlaps([earlier, later], strikes)).toMatchObject([{ isExcused: false }]);
    const endless = [
      { ...earlier, untilMs: 9_000 },
      { ...later, untilMs: 9_000 },
    ];
    const struck = buildFault({ startedAtMs: 800, healedAtMs: 850, isInsideGuarantee: false });
    expect(findOverlaps(endless, [struck])).toMatchObject([{ isExcused: false }]);
  });

  it('a strike inside of the guarantee excuses nothing', () => {
    const struck = buildFault({ startedAtMs: 800, healedAtMs: 850, isInsideGuarantee: true });
    expect(findOverlaps([earlier, later], [struck])).toMatchObject([{ isExcused: false }]);
  });
});
