import { expect, it } from 'vitest';
import fc from 'fast-check';
import { LockConfigError } from '../../lib/core/errors.js';
import { type Step, orderFixture } from '../unit/core/lock-order-fixture.js';

const TEMPLATES = ['a', 'b', 'c', 'd', 'e'];

interface Link {
  readonly template: string;
  readonly doesWait: boolean;
}

/** Locks that one call acquires one inside the other. */
const chain = fc.array(fc.record<Link>({ template: fc.constantFrom(...TEMPLATES), doesWait: fc.boolean() }), {
  minLength: 1,
  maxLength: 4,
});
const chains = fc.array(chain, { maxLength: 8 });

/** Two locks of one chain never have the same key: that would be re-entry. The characters are no digits. */
const stepsOf = (links: readonly Link[]): Step[] =>
  links.map(({ template, doesWait }, depth) => [
    `${template}${'~'.repeat(depth)}`,
    { label: template, waitMs: doesWait ? Infinity : 0 },
  ]);

/** A relation between templates, and no graph: what it implies is found by trying all. */
class Reference {
  readonly pairs = new Set<string>();

  add(links: readonly Link[]): void {
    links.forEach(({ template, doesWait }, depth) => {
      if (!doesWait) return;
      for (const held of links.slice(0, depth)) this.pairs.add(`${held.template}>${template}`);
    });
  }

  get hasCircle(): boolean {
    const closure = new Set(this.pairs);
    for (const via of TEMPLATES)
      for (const from of TEMPLATES)
        for (const to of TEMPLATES)
          if (closure.has(`${from}>${via}`) && closure.has(`${via}>${to}`)) closure.add(`${from}>${to}`);
    return TEMPLATES.some((one) => closure.has(`${one}>${one}`));
  }
}

it('a wrong order is reported exactly when the orders so far contain a circle', async () => {
  let circles = 0;
  const property = fc.asyncProperty(chains, async (all) => {
    const { inversions, edges, nest } = orderFixture();
    const reference = new Reference();
    for (const links of all) {
      for (let depth = 1; depth <= links.length; depth++) {
        await nest(stepsOf(links.slice(0, depth)));
        reference.add(links.slice(0, depth));
        expect(inversions.length > 0).toBe(reference.hasCircle);
      }
    }
    expect(edges().sort()).toEqual([...reference.pairs].sort());
    if (reference.hasCircle) circles += 1;
  });
  await fc.assert(property, { numRuns: 200, seed: 1 });
  expect(circles).toBeGreaterThan(20);
  expect(circles).toBeLessThan(190);
});

it('with "throw", calls that never give up cannot wait for each other', async () => {
  let refused = 0;
  const property = fc.asyncProperty(chains, async (all) => {
    const { nest } = orderFixture({ lockOrder: 'throw' });
    const waiting = all.map((links) => links.map((link) => ({ ...link, doesWait: true })));
    const ends = await Promise.allSettled(waiting.map((links) => nest(stepsOf(links), pause)));
    for (const end of ends) {
      if (end.status === 'fulfilled') continue;
      expect(end.reason).toBeInstanceOf(LockConfigError);
      refused += 1;
    }
  });
  await fc.assert(property, { numRuns: 200, seed: 1 });
  expect(refused).toBeGreaterThan(20);
});

/** Lets the other chains go on. */
const pause = () => new Promise((resolve) => setImmediate(resolve));
