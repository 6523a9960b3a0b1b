import { rm } from 'node:fs/promises';
import { Command } from 'commander';
import { compile } from '../../support/compiled-code.js';
import { type Control, controls } from './controls.js';
import { runEpisode } from './episode.js';
import { CHECKERS, type Checker } from './findings.js';
import { nemeses } from './nemesis/nemeses.js';
import { createPlan } from './plan.js';
import { storesUnderTest } from './stores/stores-under-test.js';
import type { StoreUnderTest } from './stores/store-under-test.js';

/**
 * `npm run controls`: puts each fault into the code of the workers, and fails if no checker sees it, if a checker sees one where
 * none was put in, or if a checker sees none of them all.
 */
const { only, seed } = new Command('controls')
  .option('--only <text>', 'run the controls with this text in their title', '')
  .option('--seed <number>', 'of the chaos', Number, 1)
  .parse()
  .opts<{ only: string; seed: number }>();

const ROUNDS = 4;

type Plan = Pick<Control, 'title' | 'backend' | 'nemeses' | 'rounds'>;

const chosen = controls.filter(({ title }) => title.includes(only));
const wrong: string[] = [];
const checkersEverRed = new Set<string>();
const openStores = new Map<string, StoreUnderTest>();
try {
  for (const plan of plansOf(chosen)) {
    if ((await runPlan(plan)).size > 0) wrong.push(`${plan.title}: red`);
  }
  for (const control of chosen) {
    let saw: Checker[] = [];
    for (let episode = 0; episode < (control.episodes ?? 1) && saw.length === 0; episode += 1) {
      const red = await runPlan(control, control, seed + episode);
      saw = control.seenBy.filter((checker) => red.has(checker));
    }
    for (const checker of saw) checkersEverRed.add(checker);
    if (saw.length === 0) wrong.push(`unseen: ${control.title}`);
  }
} finally {
  for (const store of openStores.values()) await store.close();
}
const blind = CHECKERS.filter((checker) => !checkersEverRed.has(checker));
if (only === '' && blind.length > 0) wrong.push(`checkers that saw no fault: ${blind.join(', ')}`);
console.log([`${chosen.length} faults`, ...(wrong.length > 0 ? wrong : ['all seen'])].join('\n'));
process.exitCode = wrong.length === 0 && chosen.length > 0 ? 0 : 1;

/** What the faults are played with, by itself. */
function plansOf(all: readonly Control[]): Plan[] {
  const plans = all.map(({ backend, nemeses: names, rounds = ROUNDS }): [string, Plan] => {
    const title = `no fault, ${rounds} rounds, ${backend}: ${names.join(', ')}`;
    return [title, { title, backend, nemeses: names, rounds }];
  });
  return [...new Map(plans).values()];
}

/** Plays it and prints how often each checker went red. */
async function runPlan(plan: Plan, mutation?: Control, seedOfIt = seed): Promise<Set<string>> {
  const startedAtMs = performance.now();
  const red = await redCheckers(plan, seedOfIt, mutation);
  const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(0);
  const by = [...red].map(([checker, count]) => `${checker} ×${count}`).join(', ');
  console.log(`${seconds.padStart(3)} s  ${plan.title}: ${by || 'all green'}`);
  return new Set(red.keys());
}

/** How often each checker went red. */
async function redCheckers(
  { backend, nemeses: names, rounds = ROUNDS }: Plan,
  seedOfIt: number,
  mutation?: Control,
): Promise<Map<string, number>> {
  const store = openStores.get(backend) ?? (await storesUnderTest[backend]!({ withClock: false }));
  openStores.set(backend, store);
  const code = await compile(mutation);
  try {
    const chosenNemeses = nemeses.filter(({ name }) => names.some((text) => name.includes(text)));
    const plan = createPlan(seedOfIt, store, chosenNemeses, rounds);
    const { violations, folder } = await runEpisode({ store, seed: seedOfIt, plan, code: code.folder });
    if (folder && mutation) await rm(folder, { recursive: true });
    else if (folder) console.log(`diaries: ${folder}`);
    const red = new Map<string, number>();
    for (const { checker } of violations) red.set(checker, (red.get(checker) ?? 0) + 1);
    return red;
  } finally {
    await code.remove();
  }
}
