import { afterEach, describe, expect, it } from '@jest/globals';
import { endAll } from '../../cluster/start-worker.js';
import { tempFolder } from '../../temp-folder.js';
import { kills, meetings, moments, sentenceOf } from './plans.js';
import { prepare } from './prepare.js';
import { type Recipe, plainRead, recipes } from './recipes.js';
import { type Place, places } from './stores.js';
import { type Plan, Trial } from './trial.js';

/** Processes start, and wait for leases and ticks. */
const TIMEOUT_MS = 300_000;
const LEASE_MS = 600;

const code = process.env.TEST_CODE!;
const folder = tempFolder();
const placeOf = (name: string): Place => places[name]!(folder, []);
const named = (...names: string[]) => recipes.filter(({ name }) => names.includes(name));

afterEach(endAll);

/** Plays these rounds, and answers with all that was wrong. */
async function play(recipe: Recipe, place: Place, plansOf: (checkpoints: readonly string[]) => Plan[]) {
  const prepared = await prepare(recipe, code, LEASE_MS);
  const trial = await Trial.open({ prepared, place, code, leaseMs: LEASE_MS, size: 2 });
  const outcomes = [];
  for (const plan of plansOf(prepared.checkpoints)) outcomes.push(await trial.play(plan));
  await trial.close();
  return {
    findings: outcomes.flatMap((outcome) =>
      outcome.findings.map((finding) => `${sentenceOf(outcome)}: ${finding}`),
    ),
    missed: outcomes.filter(({ wasReached }) => !wasReached).map(({ at }) => at),
    effects: outcomes.reduce((sum, { effects }) => sum + effects, 0),
    lostUpdates: outcomes.reduce((sum, { lostUpdates }) => sum + lostUpdates, 0),
  };
}

describe('processes that are stopped at each moment of a recipe of the documents, and meet another there', () => {
  it.each([
    ['redis', ['locking', 'fenced write on Redis', 'leader', 'job', 'job with retry']],
    ['postgres', ['locking', 'fenced write', 'task claim']],
  ])(
    'do nothing twice and lose nothing on %s: %j',
    async (store, names) => {
      const played = await Promise.all(
        named(...names).map((recipe) =>
          play(recipe, placeOf(store), (all) =>
            meetings(moments(all).filter((at) => !recipe.rare?.includes(at))),
          ),
        ),
      );
      expect(played.flatMap(({ findings }) => findings)).toEqual([]);
      expect(played.flatMap(({ missed }) => missed)).toEqual([]);
      expect(played.map(({ effects }) => effects > 0)).not.toContain(false);
    },
    TIMEOUT_MS,
  );
});

describe('a process that is killed while it works on a task', () => {
  it(
    'leaves it to nobody else, and its progress as it was',
    async () => {
      const [recipe] = named('task claim');
      const { findings, missed } = await play(recipe!, placeOf('postgres'), (all) =>
        kills(all.filter((at) => at.includes('during await optimisticUpdate'))),
      );
      expect(findings).toEqual([]);
      expect(missed).toEqual([]);
    },
    TIMEOUT_MS,
  );
});

describe('the recipe that reads without its token', () => {
  it(
    'is found to lose updates',
    async () => {
      const { lostUpdates } = await play(plainRead, placeOf('libsql'), (all) =>
        meetings(all.filter((at) => at.endsWith('during await fetch in line 28'))),
      );
      expect(lostUpdates).toBe(1);
    },
    TIMEOUT_MS,
  );
});
