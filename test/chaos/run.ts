import { writeFileSync } from 'node:fs';
import { randomInt } from 'node:crypto';
import { Command } from 'commander';
import { interruption } from '../services/interruption.js';
import { compile } from './compiled.js';
import { runEpisode } from './episode.js';
import { nemeses } from './nemesis/nemeses.js';
import { planFrom, shown } from './plan.js';
import { Report } from './report.js';
import { worlds } from './worlds/worlds.js';

/** `npm run chaos`: real processes and real stores, things that go wrong by chance, and checkers of what came out. */
const words = (text: string) => text.split(',');
const options = new Command('chaos')
  .option('--seed <number>', 'of the first episode; the next one has the next seed', Number, randomInt(1e9))
  .option('--minutes <number>', 'for each kind of store', Number, 1)
  .option('--backend <names>', `some of ${Object.keys(worlds).join()}`, words, Object.keys(worlds))
  .option('--nemesis <names>', 'only those of which the name contains one of these', words, [''])
  .option('--rounds <number>', 'of each episode', Number, 30)
  .option('--inside', 'only what the guarantee covers', false)
  .option('--out <file>', 'where all figures go, as JSON')
  .parse()
  .opts<{
    seed: number;
    minutes: number;
    backend: string[];
    nemesis: string[];
    rounds: number;
    inside: boolean;
    out?: string;
  }>();

const chosen = nemeses
  .filter(({ name }) => options.nemesis.some((text) => name.includes(text)))
  .filter(({ isInsideGuarantee }) => isInsideGuarantee || !options.inside);
const withClock = chosen.some(({ name }) => name.includes('clock'));
const interrupted = interruption();
const code = await compile();
const reports: Report[] = [];
try {
  for (const name of options.backend) {
    if (!interrupted.aborted) reports.push(await torment(name));
  }
} finally {
  await code.remove();
}
if (options.out) writeFileSync(options.out, JSON.stringify({ options, reports }, null, 2));
process.exitCode = reports.every(({ violations }) => violations.length === 0) ? 0 : 1;

/** One kind of store, for as long as was asked for. */
async function torment(name: string): Promise<Report> {
  const open = worlds[name];
  if (!open) throw new Error(`Expected a backend among ${Object.keys(worlds).join()}, got ${name}.`);
  const report = new Report(name);
  const world = await open({ withClock });
  const startedAtMs = performance.now();
  try {
    for (let seed = options.seed; isInTime(startedAtMs); seed += 1) {
      const plan = planFrom(seed, world, chosen, options.rounds);
      console.log(`${name}, --seed ${seed} --rounds ${options.rounds}\n${shown(plan)}`);
      const beganAtMs = performance.now();
      const findings = await runEpisode({ world, seed, plan, code: code.folder });
      report.add(findings, performance.now() - beganAtMs);
      for (const { checker, what } of findings.violations) console.log(`  BROKEN: ${checker}: ${what}`);
      if (findings.folder) console.log(`  The diaries are in ${findings.folder}`);
    }
  } finally {
    await world.close();
  }
  console.log(report.toString());
  return report;
}

function isInTime(startedAtMs: number): boolean {
  return !interrupted.aborted && performance.now() - startedAtMs < options.minutes * 60_000;
}
