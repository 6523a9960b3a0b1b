import { describe, expect, it } from '@jest/globals';
import { FARTHEST_US } from '../../../../lib/backends/typeorm/asked.js';
import { StoreClock } from '../../../../lib/backends/typeorm/store-clock.js';

describe('the clock of a database', () => {
  it('is as far as can be until it was seen, and goes on from there', () => {
    const clock = new StoreClock();
    expect(clock.at(7)).toBe(FARTHEST_US);
    clock.learn(5_000_000, 1_000);
    expect(clock.at(1_000)).toBe(5_000_000);
    expect(clock.at(1_250)).toBe(5_250_000);
  });

  it('may have been set back', () => {
    const clock = new StoreClock();
    clock.learn(5_000_000, 1_000);
    clock.learn(2_000_000, 1_100);
    expect(clock.at(1_100)).toBe(2_000_000);
  });

  it('is as the newest question saw it, whichever is answered last', () => {
    const clock = new StoreClock();
    clock.learn(2_000_000, 1_100);
    clock.learn(5_000_000, 1_000);
    expect(clock.at(1_100)).toBe(2_000_000);
  });

  it('is to be asked for at first, and again half a minute after it was', () => {
    const clock = new StoreClock();
    expect(clock.isDueAt(0)).toBe(true);
    clock.learn(5_000_000, 1_000);
    expect(clock.isDueAt(31_000)).toBe(false);
    expect(clock.isDueAt(31_001)).toBe(true);
  });
});
