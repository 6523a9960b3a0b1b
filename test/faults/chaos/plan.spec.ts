import { expect, it } from 'vitest';
import { nemeses } from './nemesis/nemeses.js';
import { createPlan } from './plan.js';
import type { StoreUnderTest } from './stores/store-under-test.js';

/** Of which everything can be struck. */
const world = {
  ...{ name: 'of a spec', servers: [{}], clock: {} },
  ...{ loseData: () => undefined, stall: () => undefined, exhaustConnections: () => undefined },
} as unknown as StoreUnderTest;

it('the same seed gives the same plan, another one another', () => {
  expect(createPlan(7, world, nemeses, 10)).toEqual(createPlan(7, world, nemeses, 10));
  expect(createPlan(7, world, nemeses, 10)).not.toEqual(createPlan(8, world, nemeses, 10));
});

it('no plan both forgets fencing tokens and sets the clock back, and at most one nemesis is in the store at a time', () => {
  for (let seed = 0; seed < 50; seed += 1) {
    const plan = createPlan(seed, world, nemeses, 20);
    const harms = new Set(plan.flat().flatMap(({ nemesis }) => nemesis.harmsTokens ?? []));
    expect(harms.size).toBeLessThanOrEqual(1);
    for (const round of plan)
      expect(round.filter(({ nemesis }) => nemesis.target === 'store').length).toBeLessThanOrEqual(1);
  }
});

it('nothing that a world does not have is planned', () => {
  const file = { name: 'a file', servers: [], stall: () => undefined } as unknown as StoreUnderTest;
  const names = createPlan(7, file, nemeses, 50).flatMap((round) =>
    round.map(({ nemesis }) => nemesis.target),
  );
  expect(new Set(names)).toEqual(new Set(['process', 'store']));
});

it('nemeses have names of their own', () => {
  expect(new Set(nemeses.map(({ name }) => name)).size).toBe(nemeses.length);
});
