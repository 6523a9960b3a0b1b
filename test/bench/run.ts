/** Measures ours, the peers and the floors in turn: `npm run bench -- --only B1,B2 --contenders ours,verrou`. */
import { mkdir, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError, Option } from 'commander';
import { interruption } from '../services/interruption.js';
import { BenchStores } from './bench-stores.js';
import { benches } from './benches.js';
import { chart } from './chart.js';
import { contenders } from './contenders.js';
import { ensurePeers } from './peers.js';
import { canPin } from './pin.js';
import { report } from './report.js';
import { type Result, Results } from './results.js';
import { takeTurns } from './turns.js';

interface Options {
  readonly only: readonly string[];
  readonly contenders: readonly string[];
  readonly case?: string;
  readonly turns?: number;
  readonly quick: boolean;
  readonly out: string;
  readonly chart?: string;
}

const DEFAULT_TURNS = 5;

const options = new Command('bench')
  .addOption(
    someOf(
      '--only <benches>',
      benches.map(({ name }) => name),
    ),
  )
  .addOption(someOf('--contenders <names>', [...new Set(contenders.map(({ name }) => name))]))
  .option('--case <name>', 'only the cases with this name, such as "alone"')
  .option('--turns <count>', `@default ${DEFAULT_TURNS}, and 1 with --quick`, wholeNumber)
  .option('--quick', 'one short turn, to see that everything works', false)
  .option('--out <folder>', 'where results go', fileURLToPath(new URL('results', import.meta.url)))
  .option('--chart <file>', 'where the chart goes as well')
  .parse()
  .opts<Options>();

const interrupted = interruption();
await ensurePeers();
const stores = await BenchStores.open();
const measured: Result[] = [];
try {
  const plan = {
    benches: benches.filter(({ name }) => options.only.includes(name)),
    contenders: contenders.filter(({ name }) => options.contenders.includes(name)),
    caseName: options.case,
    turns: options.turns ?? (options.quick ? 1 : DEFAULT_TURNS),
    isQuick: options.quick,
    canPin: await canPin(),
  };
  for await (const result of takeTurns(stores, plan)) {
    measured.push(result);
    process.stderr.write(`${progress(result)}\n`);
    if (interrupted.aborted) break;
  }
  await write(measured, plan);
} finally {
  await stores.close();
}

async function write(
  all: readonly Result[],
  plan: { benches: typeof benches; turns: number; isQuick: boolean },
) {
  const results = new Results(all);
  const tables = report(results, plan.benches);
  const drawn = chart(results);
  const machine = { cpu: cpus()[0]?.model, cores: cpus().length, node: process.version };
  const { turns, isQuick } = plan;
  await mkdir(options.out, { recursive: true });
  await writeFile(
    join(options.out, 'bench.json'),
    JSON.stringify({ machine, turns, isQuick, results: all }, null, 1),
  );
  await writeFile(join(options.out, 'bench.txt'), `${tables}\n`);
  await writeFile(join(options.out, 'bench.svg'), drawn);
  if (options.chart) await writeFile(options.chart, drawn);
  console.log(tables);
}

function progress({ turn, bench, caseName, store, contender, profile, figures, failure }: Result): string {
  const description =
    failure ??
    Object.entries(figures ?? {})
      .slice(0, 3)
      .map(([name, value]) => `${name} ${value.toFixed(2)}`)
      .join(', ');
  return `${bench} turn ${turn + 1}, ${store}, ${caseName}, ${contender} ${profile}: ${description}`;
}

function someOf(flags: string, known: readonly string[]): Option {
  const parse = (text: string) => {
    const names = text.split(',');
    const unknownName = names.find((name) => !known.includes(name));
    if (unknownName === undefined) return names;
    throw new InvalidArgumentError(`Expected some of ${known.join(',')}, but got "${unknownName}".`);
  };
  return new Option(flags, `some of ${known.join(',')}`).default(known, 'all').argParser(parse);
}

function wholeNumber(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count > 0) return count;
  throw new InvalidArgumentError(`Expected a whole number above 0, but got "${text}".`);
}
