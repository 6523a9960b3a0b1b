import { describe, expect, it } from 'vitest';
import { buildHold } from './sample-records.js';
import { checkSet } from './fenced-set.js';

const added = (...items: string[]) =>
  buildHold({ op: 'a', fencingToken: 1n, fromMs: 0, untilMs: 1, added: { fenced: items, unfenced: [] } });

describe('what was added to a list under a lock', () => {
  it('green: all of it is there once, and perhaps something that was not acknowledged', () => {
    expect(checkSet([added('x', 'y')], 'fenced', [['x'], ['y', 'z']])).toEqual({
      ...{ acknowledged: 2, lost: [], duplicated: [] },
    });
  });

  it('red: something is lost', () => {
    expect(checkSet([added('x', 'y')], 'fenced', [['x']]).lost).toEqual(['y']);
  });

  it('red: something is there twice', () => {
    expect(checkSet([added('x')], 'fenced', [['x', 'x']]).duplicated).toEqual(['x']);
  });
});
