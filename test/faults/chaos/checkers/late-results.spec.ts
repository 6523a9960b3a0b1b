import { describe, expect, it } from 'vitest';
import type { Acquisition } from '../workers/history.js';
import { findLateResults } from './late-results.js';

const ask: Acquisition = { op: 'a', worker: 'w', key: 'key', leaseMs: 1_000, waitMs: 100, askedAtMs: 0 };
const late = (told: Partial<Acquisition>, stops: Parameters<typeof findLateResults>[1]['stops'] = []) =>
  findLateResults([{ ...ask, ...told }], { boundMs: 50, stops });

describe('everybody is answered', () => {
  it('green: in time, or a little later', () => {
    expect(late({ answeredAtMs: 150 })).toEqual([]);
  });

  it('green: his process was killed', () => {
    expect(late({ killedAtMs: 10 })).toEqual([]);
  });

  it('green: his process stood still for as long', () => {
    expect(late({ answeredAtMs: 400 }, [{ worker: 'w', fromMs: 60, toMs: 310 }])).toEqual([]);
  });

  it('red: too late', () => {
    expect(late({ answeredAtMs: 151 })).toMatchObject([{ lateMs: 51 }]);
  });

  it('red: never', () => {
    expect(late({})).toMatchObject([{ lateMs: Infinity }]);
  });

  it('red: another process stood still', () => {
    expect(late({ answeredAtMs: 400 }, [{ worker: 'other', fromMs: 60, toMs: 310 }])).toHaveLength(1);
  });
});
