import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Table from 'cli-table3';
import { Command } from 'commander';
import { compile } from '../../support/compiled-code.js';
import { interruption } from '../../services/interruption.js';
import { type ServiceName, openServices } from '../../services/open-services.js';
import { startRedisQuorum, stopAll } from '../../services/redis-quorum.js';
import { allPlans, sentenceOf } from './plans.js';
import { prepare } from './prepare.js';
import { type Recipe, plainRead, recipes } from './recipes.js';
import { type RecipeStore, recipeStores } from './recipe-stores.js';
import { Tally } from './tally.js';
import { Trial } from './trial.js';

/** `npm run recipes`: the recipes of the documents, with processes stopped and killed between each two lines of them. */
const SERVERS = 5;
/** Of the findings of one round. */
const MAX_PRINTED_FINDINGS = 5;
const servicesOf: Readonly<Record<string, readonly ServiceName[]>> = {
  redis: ['redis'],
  postgres: ['postgres'],
  mariadb: ['mariadb'],
  mysql: ['mariadb'],
  sqlite: ['better-sqlite3'],
};

const splitNames = (text: string) => text.split(',');
const options = new Command('recipes')
  .option(
    '--minutes <number>',
    'for each store, shared by its recipes; each has at least one round',
    Number,
    1,
  )
  .option(
    '--backend <names>',
    `some of ${Object.keys(recipeStores).join()}`,
    splitNames,
    Object.keys(recipeStores),
  )
  .option('--recipe <names>', 'only those of which the name contains one of these', splitNames, [''])
  .option('--control', 'the recipe that loses updates, which must be found', false)
  .option('--lease <number>', 'of the locks, in ms', Number, 1_000)
  .parse()
  .opts<{ minutes: number; backend: string[]; recipe: string[]; control: boolean; lease: number }>();

for (const name of options.backend)
  if (!recipeStores[name])
    throw new Error(`Expected a backend among ${Object.keys(recipeStores).join()}, got ${name}.`);
const chosen = options.control
  ? [plainRead]
  : recipes.filter(({ name }) => options.recipe.some((text) => name.includes(text)));
const interrupted = interruption();
const isOver = () => interrupted.aborted;

const folder = await mkdtemp(join(tmpdir(), 'lock-test-recipes-'));
const code = await compile();
const services = await openServices([...new Set(options.backend.flatMap((name) => servicesOf[name] ?? []))]);
Object.assign(process.env, services.variables);
const quorum = options.backend.includes('quorum') ? await startRedisQuorum(SERVERS) : [];
const tallies: Tally[] = [];
try {
  for (const name of options.backend) {
    const store = recipeStores[name]!(
      folder,
      quorum.map(({ url }) => url),
    );
    const applicable = chosen.filter(({ data }) => data === 'none' || store.has(data));
    for (const recipe of applicable) {
      if (isOver()) break;
      await runRecipe(store, recipe, (options.minutes * 60_000) / applicable.length);
    }
  }
} finally {
  await stopAll(quorum);
  await services.close();
  await code.remove();
  rmSync(folder, { recursive: true, force: true });
}
const table = new Table({ head: [...Tally.head], style: { head: [], border: [] } });
table.push(...tallies.map(({ row }) => [...row]));
console.log(table.toString());
const isGreen = tallies.length > 0 && tallies.every(({ findings, sums }) => !findings.length && sums.rounds);
console.log(isGreen ? 'All green.' : 'Red.');
process.exit(isGreen ? 0 : 1);

async function runRecipe(store: RecipeStore, recipe: Recipe, forMs: number): Promise<void> {
  const prepared = await prepare(recipe, code.folder, options.lease);
  const tally = new Tally(store.name, recipe.name, prepared.checkpoints);
  tallies.push(tally);
  const trial = await Trial.open({ prepared, store, code: code.folder, leaseMs: options.lease });
  try {
    const endMs = performance.now() + forMs;
    for (const plan of allPlans(prepared.checkpoints)) {
      const outcome = await trial.runRound(plan);
      tally.add(outcome);
      for (const finding of outcome.findings.slice(0, MAX_PRINTED_FINDINGS)) {
        console.error(`${store.name}, ${recipe.name}, ${sentenceOf(plan)}: ${finding}`);
      }
      if (isOver() || performance.now() > endMs) break;
    }
    await trial.close();
  } finally {
    trial.killAll();
  }
  if (tally.missed.length > 0) {
    console.log(`${store.name}, ${recipe.name}: nobody came by, or not yet:\n  ${tally.missed.join('\n  ')}`);
  }
  console.log(`${store.name}, ${recipe.name}: ${JSON.stringify(tally.sums)}`);
}
