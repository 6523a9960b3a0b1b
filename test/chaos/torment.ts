import { inspect } from 'node:util';
import { runEpisode } from './episode.js';
import type { Nemesis } from './nemesis/nemesis.js';
import { planFrom, shown } from './plan.js';
import type { Report } from './report.js';
import type { World } from './worlds/world.js';
import { worlds } from './worlds/worlds.js';

interface Torment {
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
  whenToldMore(): void;
}

/** So many episodes that could not be played show that none can. */
const MOST_UNPLAYED = 5;

/** One kind of store, episode after episode. One that goes wrong does not keep the others from being played. */
export async function torment(parts: Torment): Promise<void> {
  const startedAtMs = performance.now();
  let world: World | undefined;
  let unplayed = 0;
  try {
    for (let { seed } = parts; ; seed += 1) {
      world = await episodeIn(world, seed, parts);
      parts.whenToldMore();
      if (!world) unplayed += 1;
      if (unplayed === MOST_UNPLAYED) return;
      if (parts.interrupted.aborted || performance.now() - startedAtMs >= parts.forMs) return;
    }
  } finally {
    await world?.close();
  }
}

/** Returns the world, if it can be used again. */
async function episodeIn(
  known: World | undefined,
  seed: number,
  { report, nemeses, code, rounds, interrupted, commandFor }: Torment,
): Promise<World | undefined> {
  const command = commandFor(seed);
  const { backend } = report;
  let world = known;
  try {
    world ??= await worlds[backend]!({ withClock: nemeses.some(({ name }) => name.includes('clock')) });
    const plan = planFrom(seed, world, nemeses, rounds);
    console.log(`${command}\n${shown(plan)}`);
    const beganAtMs = performance.now();
    const findings = await runEpisode({ world, seed, plan, code, interrupted });
    report.add(findings, performance.now() - beganAtMs);
    const { violations, folder } = findings;
    const what = violations.map((one) => `${one.checker}: ${one.what}`);
    if (what.length > 0) report.red.push({ backend, seed, what, command, folder });
    console.log(`  ${what.length > 0 ? 'RED' : 'green'}; ${soFar(report)}`);
    for (const one of what) console.log(`  BROKEN: ${one}`);
    await forget(world);
    return world;
  } catch (error) {
    // Of the harness, or of a server that did not come back; so the next episode gets a new world.
    report.red.push({ backend, seed, what: [inspect(error)], command });
    console.log(`  RED: the episode could not be played to its end: ${inspect(error)}`);
    await world?.close().catch((reason: unknown) => console.log('  nor could its servers be ended:', reason));
    return undefined;
  }
}

/** So that no episode depends on those before, and can be played again without them. */
async function forget(world: World): Promise<void> {
  world.clock?.setRight();
  await world.forget();
}

function soFar(report: Report): string {
  const { episodes, faults, minutes, red } = report.toJSON();
  const megabytes = Math.round(process.memoryUsage().rss / 2 ** 20);
  const perMinute = Math.round(faults / minutes);
  return `${faults} faults in ${episodes} episodes, ${perMinute} per minute, ${red.length} red; ${megabytes} MB`;
}
