import { afterEach, expect, it } from 'vitest';
import { redisStore } from '../support/stores.js';
import { deploy } from '../faults/scenarios/rolling-deploy.js';
import { endAllWorkers } from './start-worker.js';

afterEach(endAllWorkers);

it('a deploy that replaces one replica after the other leaves no tick out and doubles none', async () => {
  const { ticksRun, ticksRunTwice, ticksLeftOut, handOversMs } = await deploy(redisStore());
  expect(ticksRun).toBeGreaterThan(0);
  expect({ ticksRunTwice, ticksLeftOut }).toEqual({ ticksRunTwice: 0, ticksLeftOut: {} });
  expect(handOversMs.length).toBeGreaterThan(0);
}, 120_000);
