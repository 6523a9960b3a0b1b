import { describe, expect, it } from 'vitest';
import { StoreClock } from '../../../../../lib/backends/typeorm/requests/store-clock.js';
import { MAX_TIME_US } from '../../../../../lib/backends/typeorm/table/lock-row.js';

describe('the clock of a database', () => {
  it('is the latest possible time until it was read, and advances from there', () => {
    const clock = new StoreClock();
    expect(clock.storeTimeAt(7)).toBe(MAX_TIME_US);
    clock.update(5_000_000, 1_000);
    expect(clock.storeTimeAt(1_000)).toBe(5_000_000);
    expect(clock.storeTimeAt(1_250)).toBe(5_250_000);
  });

  it('may have been set back', () => {
    const clock = new StoreClock();
    clock.update(5_000_000, 1_000);
    clock.update(2_000_000, 1_100);
    expect(clock.storeTimeAt(1_100)).toBe(2_000_000);
  });

  it('is that of the request that was sent last, whichever result comes last', () => {
    const clock = new StoreClock();
    clock.update(2_000_000, 1_100);
    clock.update(5_000_000, 1_000);
    expect(clock.storeTimeAt(1_100)).toBe(2_000_000);
  });

  it('should be read at first, and again after half a minute', () => {
    const clock = new StoreClock();
    expect(clock.needsUpdateAt(0)).toBe(true);
    clock.update(5_000_000, 1_000);
    expect(clock.needsUpdateAt(31_000)).toBe(false);
    expect(clock.needsUpdateAt(31_001)).toBe(true);
  });
});
