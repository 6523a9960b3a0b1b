import { readFile } from 'node:fs/promises';
import { Argument, Command } from 'commander';
import { applyMutation } from '../support/compiled-code.js';
import type { Fault, FaultList } from './fault-list.js';

/**
 * `npm run mutants` and `npm run controls`: puts each fault of a list into copies of the code, and fails if one stays
 * undetected. Specs must detect the mutants, and the checkers of chaos must detect the controls.
 */
interface Options {
  readonly only: string;
  readonly from: string;
  readonly seed: number;
}

const program = new Command()
  .addArgument(new Argument('<list>', 'which faults').choices(['mutants', 'controls']))
  .option('--only <text>', 'try the faults with this text in their title', '')
  .option('--from <text>', 'begin with the first one that has this text in its title', '')
  .option('--seed <number>', 'of the chaos', Number, 1)
  .parse();
const options = program.opts<Options>();
const isGreen =
  program.args[0] === 'mutants'
    ? await detectAll((await import('./by-specs.js')).bySpecs)
    : await detectAll((await import('./by-chaos.js')).byChaos(options.seed));
process.exitCode = isGreen ? 0 : 1;

/** Returns whether all chosen faults were detected, and nothing else was wrong. */
async function detectAll<Each extends Fault>({ faults, lanes, open }: FaultList<Each>): Promise<boolean> {
  const { only, from } = options;
  const first = faults.findIndex(({ title }) => title.includes(from));
  const chosen = faults.slice(Math.max(first, 0)).filter(({ title }) => title.includes(only));
  if (first < 0 || chosen.length === 0) throw new Error('No fault has such a title.');
  // Finds a quote that is not in the code before hours have passed.
  for (const fault of chosen) applyMutation(await readFile(fault.file, 'utf8'), fault);
  const left = [...chosen];
  const undetected: string[] = [];
  const others: string[] = [];
  const work = async () => {
    const detector = await open(chosen);
    try {
      for (let fault = left.shift(); fault; fault = left.shift()) {
        const { isDetected, text } = await detector.detect(fault);
        console.log(`${isDetected ? 'detected' : 'UNDETECTED'}  ${fault.title}: ${text}`);
        if (!isDetected) undetected.push(`undetected: ${fault.title}`);
      }
    } finally {
      others.push(...(await detector.close()));
    }
  };
  await Promise.all(Array.from({ length: lanes }, work));
  const count = `${chosen.length - undetected.length} of ${chosen.length} faults detected`;
  console.log([count, ...undetected, ...others].join('\n'));
  return undetected.length + others.length === 0;
}
