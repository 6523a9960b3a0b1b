import { expect, it } from '@jest/globals';
import { nemeses } from './nemesis/nemeses.js';
import { planFrom } from './plan.js';
import type { World } from './worlds/world.js';

/** Of which everything can be struck. */
const world = {
  ...{ name: 'of a spec', servers: [{}], clock: {} },
  ...{ loseData: () => undefined, stall: () => undefined, crowd: () => undefined },
} as unknown as World;

it('the same seed gives the same plan, another one another', () => {
  expect(planFrom(7, world, nemeses, 10)).toEqual(planFrom(7, world, nemeses, 10));
  expect(planFrom(7, world, nemeses, 10)).not.toEqual(planFrom(8, world, nemeses, 10));
});

it('no plan both forgets fencing tokens and sets the clock back, and at most one nemesis is in the store at a time', () => {
  for (let seed = 0; seed < 50; seed += 1) {
    const plan = planFrom(seed, world, nemeses, 20);
    const harms = new Set(plan.flat().flatMap(({ nemesis }) => nemesis.harmsTokens ?? []));
    expect(harms.size).toBeLessThanOrEqual(1);
    for (const round of plan)
      expect(round.filter(({ nemesis }) => nemesis.target === 'store').length).toBeLessThanOrEqual(1);
  }
});

it('nothing that a world does not have is planned', () => {
  const file = { name: 'a file', servers: [], stall: () => undefined } as unknown as World;
  const names = planFrom(7, file, nemeses, 50).flatMap((round) => round.map(({ nemesis }) => nemesis.target));
  expect(new Set(names)).toEqual(new Set(['process', 'store']));
});

it('nemeses have names of their own', () => {
  expect(new Set(nemeses.map(({ name }) => name)).size).toBe(nemeses.length);
});
