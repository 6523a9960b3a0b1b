import { afterEach, expect, it } from '@jest/globals';
import { postgresStore, redisStore } from '../stores.js';
import { deploy } from './rolling-deploy.js';
import { endAll } from './start-worker.js';

afterEach(endAll);

it.each([
  ['redis', redisStore],
  ['postgres', postgresStore],
] as const)(
  'a deploy that replaces one replica after the other leaves no tick out and doubles none (%s)',
  async (_, storeOf) => {
    const { ticksDue, ticksRun, ticksRunTwice, handOversMs } = await deploy(storeOf());
    expect({ ticksRun, ticksRunTwice }).toEqual({ ticksRun: ticksDue, ticksRunTwice: 0 });
    expect(handOversMs.length).toBeGreaterThan(0);
  },
  120_000,
);
