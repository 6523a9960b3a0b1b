import { writeFileSync } from 'node:fs';
import { randomInt } from 'node:crypto';
import { Command } from 'commander';
import { interruption } from '../../services/interruption.js';
import { compile } from '../../support/compiled-code.js';
import { nemeses } from './nemesis/nemeses.js';
import { Report, type Tally } from './report.js';
import { formatSideBySide, formatVerdict } from './summary.js';
import { runInParallel } from './parallel-runs.js';
import { runEpisodes } from './episodes.js';
import { storesUnderTest } from './stores/stores-under-test.js';

/** `npm run chaos`: real processes and real stores, things that go wrong by chance, and checkers of what came out. */
const splitNames = (text: string) => text.split(',');
const options = new Command('chaos')
  .option('--seed <number>', 'of the first episode; the next one has the next', Number, randomInt(1e9))
  .option('--minutes <number>', 'for each kind of store, but at least one episode', Number, 1)
  .option(
    '--backend <names>',
    `some of ${Object.keys(storesUnderTest).join()}`,
    splitNames,
    Object.keys(storesUnderTest),
  )
  .option('--together', 'all kinds of stores at the same time', false)
  .option('--nemesis <names>', 'only those of which the name contains one of these', splitNames, [''])
  .option('--rounds <number>', 'of each episode', Number, 30)
  .option('--inside', 'only what the guarantee covers', false)
  .option('--out <file>', 'where all figures go, as JSON, after each episode')
  .parse()
  .opts<{
    seed: number;
    minutes: number;
    backend: string[];
    together: boolean;
    nemesis: string[];
    rounds: number;
    inside: boolean;
    out?: string;
  }>();

for (const name of options.backend)
  if (!storesUnderTest[name])
    throw new Error(`Expected a backend among ${Object.keys(storesUnderTest).join()}, got ${name}.`);
const chosen = nemeses
  .filter(({ name }) => options.nemesis.some((text) => name.includes(text)))
  .filter(({ isInsideGuarantee }) => isInsideGuarantee || !options.inside);
const sharedArguments = [
  ...['--rounds', `${options.rounds}`, '--nemesis', options.nemesis.join()],
  ...(options.inside ? ['--inside'] : []),
];
const interrupted = interruption();
const tallies = options.together ? await allTogether() : await oneAfterTheOther();
if (tallies.length > 1) console.log(formatSideBySide(tallies));
console.log(formatVerdict(tallies));
// An end by itself may never come: Node 20 spins while it closes a connection that was reset as it was opened.
process.exit(tallies.every(({ red }) => red.length === 0) ? 0 : 1);

async function allTogether(): Promise<Tally[]> {
  const args = ['--minutes', `${options.minutes}`, ...sharedArguments];
  const all = await runInParallel(options.backend, { seed: options.seed, args, interrupted });
  save(all, { isOver: true });
  return all;
}

async function oneAfterTheOther(): Promise<Tally[]> {
  const code = await compile();
  const reports: Report[] = [];
  const saveReports = ({ isOver }: { readonly isOver: boolean }) =>
    save(
      reports.map((report) => report.toJSON()),
      { isOver },
    );
  try {
    for (const name of options.backend) {
      if (interrupted.aborted) break;
      const report = new Report(name);
      reports.push(report);
      await runEpisodes({
        ...{ report, interrupted, nemeses: chosen, code: code.folder },
        ...{ seed: options.seed, rounds: options.rounds, forMs: options.minutes * 60_000 },
        commandFor: (seed) =>
          inShell(['--seed', `${seed}`, '--minutes', '0', '--backend', name, ...sharedArguments]),
        onProgress: () => saveReports({ isOver: false }),
      });
      console.log(report.toString());
    }
  } finally {
    await code.remove();
  }
  saveReports({ isOver: true });
  return reports.map((report) => report.toJSON());
}

function inShell(args: readonly string[]): string {
  return ['npm run chaos --', ...args.map((arg) => (/^[\w,.-]+$/.test(arg) ? arg : `'${arg}'`))].join(' ');
}

function save(all: readonly Tally[], { isOver }: { readonly isOver: boolean }): void {
  if (options.out) writeFileSync(options.out, JSON.stringify({ options, isOver, tallies: all }, null, 2));
}
