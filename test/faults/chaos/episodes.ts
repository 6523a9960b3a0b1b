import { inspect } from 'node:util';
import { runEpisode } from './episode.js';
import type { Nemesis } from './nemesis/nemesis.js';
import { createPlan, formatPlan } from './plan.js';
import type { Report } from './report.js';
import type { StoreUnderTest } from './stores/store-under-test.js';
import { storesUnderTest } from './stores/stores-under-test.js';

interface EpisodesOptions {
  /** Also says which kind of store. */
  readonly report: Report;
  readonly nemeses: readonly Nemesis[];
  /** Where the compiled code is. */
  readonly code: string;
  /** Of the first episode. */
  readonly seed: number;
  readonly rounds: number;
  readonly forMs: number;
  readonly interrupted: AbortSignal;
  /** What plays the episode with this seed again. */
  commandFor(seed: number): string;
  onProgress(): void;
}

/** So many episodes that could not be played show that none can. */
const MAX_FAILED_EPISODES = 5;

/** One kind of store, episode after episode. One that goes wrong does not keep the others from being played. */
export async function runEpisodes(parts: EpisodesOptions): Promise<void> {
  const startedAtMs = performance.now();
  let store: StoreUnderTest | undefined;
  let failedEpisodes = 0;
  try {
    for (let { seed } = parts; ; seed += 1) {
      store = await runNextEpisode(store, seed, parts);
      parts.onProgress();
      if (!store) failedEpisodes += 1;
      if (failedEpisodes === MAX_FAILED_EPISODES) return;
      if (parts.interrupted.aborted || performance.now() - startedAtMs >= parts.forMs) return;
    }
  } finally {
    await store?.close();
  }
}

/** Returns the world, if it can be used again. */
async function runNextEpisode(
  openStore: StoreUnderTest | undefined,
  seed: number,
  { report, nemeses, code, rounds, interrupted, commandFor }: EpisodesOptions,
): Promise<StoreUnderTest | undefined> {
  const command = commandFor(seed);
  const { backend } = report;
  let store = openStore;
  try {
    store ??= await storesUnderTest[backend]!({
      withClock: nemeses.some(({ name }) => name.includes('clock')),
    });
    const plan = createPlan(seed, store, nemeses, rounds);
    console.log(`${command}\n${formatPlan(plan)}`);
    const beganAtMs = performance.now();
    const findings = await runEpisode({ store, seed, plan, code, interrupted });
    report.add(findings, performance.now() - beganAtMs);
    const { violations, folder } = findings;
    const what = violations.map((one) => `${one.checker}: ${one.what}`);
    if (what.length > 0) report.red.push({ backend, seed, what, command, folder });
    console.log(`  ${what.length > 0 ? 'RED' : 'green'}; ${formatProgress(report)}`);
    for (const one of what) console.log(`  BROKEN: ${one}`);
    await resetStore(store);
    return store;
  } catch (error) {
    // Of the harness, or of a server that did not come back; so the next episode gets a new world.
    report.red.push({ backend, seed, what: [inspect(error)], command });
    console.log(`  RED: the episode could not be played to its end: ${inspect(error)}`);
    await store?.close().catch((reason: unknown) => console.log('  nor could its servers be ended:', reason));
    return undefined;
  }
}

/** So that no episode depends on those before, and can be played again without them. */
async function resetStore(store: StoreUnderTest): Promise<void> {
  store.clock?.reset();
  await store.deleteAll();
}

function formatProgress(report: Report): string {
  const { episodes, faults, minutes, red } = report.toJSON();
  const megabytes = Math.round(process.memoryUsage().rss / 2 ** 20);
  const perMinute = Math.round(faults / minutes);
  return `${faults} faults in ${episodes} episodes, ${perMinute} per minute, ${red.length} red; ${megabytes} MB`;
}
