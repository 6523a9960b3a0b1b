import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { toJavaScript } from '../../support/compiled-code.js';
import { blockThatDeclares } from './blocks.js';
import { instrument } from './instrument.js';
import type { Recipe } from './recipes.js';

export interface PreparedRecipe {
  readonly recipe: Recipe;
  readonly module: string;
  readonly checkpoints: readonly string[];
  readonly elections: readonly string[];
}

const ENTRY_POINTS: Readonly<Record<string, string>> = {
  'nestjs-distributed-lock': 'lib/index.js',
  'nestjs-distributed-lock/redis': 'lib/backends/redis/index.js',
  'nestjs-distributed-lock/typeorm': 'lib/backends/typeorm/index.js',
};

/** Writes the recipe of the documents, instrumented, beside the compiled code that it is to run on. */
export async function prepare(recipe: Recipe, code: string, leaseMs: number): Promise<PreparedRecipe> {
  const specifierOf = (name: string) => {
    const entryPoint = ENTRY_POINTS[name];
    return entryPoint === undefined ? name : pathToFileURL(join(code, entryPoint)).href;
  };
  const block = blockThatDeclares(recipe.declares, recipe.documents);
  const { code: source, checkpoints, elections } = instrument(block, { leaseMs, specifierOf });
  const file = join(await mkdtemp(join(code, 'recipe-')), 'recipe.js');
  await writeFile(file, await toJavaScript(source, 'recipe.ts'));
  const runsOnce = (name: string) => recipe.runsOnce?.some((path) => name.startsWith(`${path} `));
  return {
    ...{ recipe, module: pathToFileURL(file).href, elections },
    checkpoints: checkpoints.filter((name) => !runsOnce(name)),
  };
}

/** The function in which a checkpoint lies. */
export const pathOf = (checkpoint: string): string => checkpoint.slice(0, checkpoint.indexOf(' '));
