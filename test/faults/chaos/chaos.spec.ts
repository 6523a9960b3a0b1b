import { afterEach, expect, it } from 'vitest';
import { endAllWorkers } from '../../cluster/start-worker.js';
import { runEpisode } from './episode.js';
import { nemeses } from './nemesis/nemeses.js';
import { createPlan } from './plan.js';
import { storesUnderTest } from './stores/stores-under-test.js';

/** A longer run, and others, by `npm run chaos`. */
const SEED = 20;

afterEach(endAllWorkers);

it.each(['redis', 'postgres'])(
  'on %s, processes that work while things go wrong break no promise',
  async (name) => {
    const store = await storesUnderTest[name]!({ withClock: false });
    try {
      const plan = createPlan(SEED, store, nemeses, 2);
      const { violations, counts } = await runEpisode({
        store,
        seed: SEED,
        plan,
        code: process.env.TEST_CODE!,
        size: 3,
      });
      expect(violations).toEqual([]);
      expect(counts).toMatchObject({ 'stale writes accepted': 0 });
      expect(counts['granted']).toBeGreaterThan(0);
    } finally {
      await store.close();
    }
  },
  120_000,
);
