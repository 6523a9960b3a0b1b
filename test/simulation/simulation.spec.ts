import './sim-event-loop.js'; // First, as the others keep the timers that they find.
import { expect, it } from 'vitest';
import { runSchedule } from './schedule.js';

/** Longer runs, with other seeds: `npm run simulate`. */
const FIRST_SEED = 1;
const SCHEDULES = 400;
const LIMIT_MS = 120_000;

it(
  'locks keep their promises, whatever befalls processes, clocks, messages and the store',
  async () => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SCHEDULES; seed += 1) {
      const { findings } = await runSchedule(seed);
      expect({ seed, findings }).toEqual({ seed, findings: [] });
    }
  },
  LIMIT_MS,
);

it('a seed gives the same schedule each time', async () => {
  const tell = async () => {
    const told: string[] = [];
    await runSchedule(7, (line) => told.push(line));
    return told.map(withoutIdentities);
  };
  const first = await tell();
  expect(first.length).toBeGreaterThan(10);
  expect(await tell()).toEqual(first);
});

/** Holders are random for every process, whatever the seed. */
const withoutIdentities = (line: string) => line.replace(/"holder":"[^":]+:/g, '"holder":"');
