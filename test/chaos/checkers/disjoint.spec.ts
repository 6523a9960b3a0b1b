import { describe, expect, it } from '@jest/globals';
import { aHold, aStrike } from './a-hold.js';
import { overlapsOf } from './disjoint.js';

const earlier = aHold({ op: 'a', fencingToken: 1n, fromMs: 0, untilMs: 1_000 });
const later = aHold({ op: 'b', fencingToken: 2n, fromMs: 900, untilMs: 1_900 });

describe('locks of one key are valid one after the other', () => {
  it('green: the next one begins when the one before has run out, was given back, lost, or its holder killed', () => {
    const ends = [{ untilMs: 899 }, { releasingAtMs: 899 }, { lostAtMs: 899 }, { killedAtMs: 899 }];
    for (const end of ends) expect(overlapsOf([{ ...earlier, ...end }, later], [])).toEqual([]);
  });

  it('green: on different keys', () => {
    expect(overlapsOf([earlier, { ...later, key: 'other' }], [])).toEqual([]);
  });

  it('green: what was over when it came', () => {
    expect(overlapsOf([earlier, { ...later, untilMs: 900 }], [])).toEqual([]);
  });

  it('red: two are valid at the same time', () => {
    expect(overlapsOf([later, earlier], [])).toMatchObject([{ earlier, later, byMs: 100, isExcused: false }]);
  });

  it('red: behind one that is short stands one that is long', () => {
    const short = aHold({ op: 'c', fencingToken: 3n, fromMs: 10, untilMs: 20 });
    expect(overlapsOf([earlier, short, later], [])).toHaveLength(2);
  });

  it('red: isValid() says yes after the end', () => {
    const over = { ...earlier, untilMs: 500, seenValidAtMs: 950 };
    expect(overlapsOf([over, later], [])).toHaveLength(1);
  });

  it('a strike outside of the guarantee excuses what it may have made forgotten', () => {
    const struck = aStrike({ struckAtMs: 800, healedAtMs: 850, isInsideGuarantee: false });
    expect(overlapsOf([earlier, later], [struck])).toMatchObject([{ isExcused: true }]);
  });

  it('it excuses also what callers of one process have had in turn since, from a grant that was forgotten', () => {
    const struck = aStrike({ struckAtMs: 100, healedAtMs: 150, isInsideGuarantee: false });
    const passedOn = aHold({ op: 'c', worker: 'a', fencingToken: 2n, fromMs: 500, untilMs: 1_000 });
    const first = { ...earlier, releasingAtMs: 500 };
    const other = { ...later, fromMs: 600, askedAtMs: 600, fencingToken: 9n };
    expect(overlapsOf([first, passedOn, other], [struck])).toMatchObject([{ isExcused: true }]);
    const ofAnother = { ...passedOn, worker: 'c' };
    expect(overlapsOf([first, ofAnother, other], [struck])).toMatchObject([{ isExcused: false }]);
  });

  it('it does not excuse what was granted before, what was granted long after, or what does not end', () => {
    const strikes = [
      aStrike({ struckAtMs: 950, healedAtMs: 960, isInsideGuarantee: false }),
      aStrike({ struckAtMs: -9_000, healedAtMs: -8_000, isInsideGuarantee: false }),
    ];
    expect(overlapsOf([earlier, later], strikes)).toMatchObject([{ isExcused: false }]);
    const endless = [
      { ...earlier, untilMs: 9_000 },
      { ...later, untilMs: 9_000 },
    ];
    const struck = aStrike({ struckAtMs: 800, healedAtMs: 850, isInsideGuarantee: false });
    expect(overlapsOf(endless, [struck])).toMatchObject([{ isExcused: false }]);
  });

  it('a strike inside of the guarantee excuses nothing', () => {
    const struck = aStrike({ struckAtMs: 800, healedAtMs: 850, isInsideGuarantee: true });
    expect(overlapsOf([earlier, later], [struck])).toMatchObject([{ isExcused: false }]);
  });
});
