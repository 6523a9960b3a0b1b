import { afterEach, expect, it } from '@jest/globals';
import { endAll } from '../cluster/start-worker.js';
import { runEpisode } from './episode.js';
import { nemeses } from './nemesis/nemeses.js';
import { planFrom } from './plan.js';
import { worlds } from './worlds/worlds.js';

/** A longer run, and others, by `npm run chaos`. */
const SEED = 20;

afterEach(endAll);

it.each(['redis', 'postgres'])(
  'on %s, processes that work while things go wrong break no promise',
  async (name) => {
    const world = await worlds[name]!({ withClock: false });
    try {
      const plan = planFrom(SEED, world, nemeses, 2);
      const { violations, counts } = await runEpisode({
        world,
        seed: SEED,
        plan,
        code: process.env.TEST_CODE!,
        size: 3,
      });
      expect(violations).toEqual([]);
      expect(counts).toMatchObject({ 'stale writes accepted': 0 });
      expect(counts['granted']).toBeGreaterThan(0);
    } finally {
      await world.close();
    }
  },
  120_000,
);
