import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { execa } from 'execa';
import { type Mutant, mutants } from './mutants.js';

/** `npm run mutants`: puts each fault into a copy of the code, of which each core has its own, and fails if its specs stay green. */
const { only, from } = new Command()
  .option('--only <text>', 'run the mutants with this text in their title', '')
  .option('--from <text>', 'begin with the first one that has this text in its title', '')
  .parse()
  .opts<{ only: string; from: string }>();

const COPIED = ['lib', 'test', 'package.json', 'jest.config.js', 'tsconfig.json'];

/** One process, so that all of it ends when it is killed. */
const JEST = [
  '--experimental-vm-modules',
  '--no-warnings',
  'node_modules/jest/bin/jest.js',
  '--bail',
  '--runInBand',
];
/** Specs that are green have ended by then. */
const TIMEOUT_MS = 240_000;

const END = {
  red: 'killed  ',
  never: 'killed, as its specs never end:',
  green: 'SURVIVED',
  none: 'NO SPEC RAN',
};

const folder = await mkdtemp(join(tmpdir(), 'distributed-lock-mutants-'));
const first = mutants.findIndex(({ title }) => title.includes(from));
if (first < 0) throw new Error(`No mutant has '${from}' in its title.`);
const chosen = mutants.slice(first).filter(({ title }) => title.includes(only));
const waiting = [...chosen];
const survivors: string[] = [];
try {
  await Promise.all(chosen.map(changed));
  const copies = Array.from({ length: availableParallelism() }, (_, number) => join(folder, String(number)));
  await Promise.all(copies.map(tryAllIn));
} finally {
  await rm(folder, { recursive: true, force: true });
}
console.log(`${chosen.length - survivors.length} of ${chosen.length} mutants killed`);
process.exitCode = survivors.length === 0 && chosen.length > 0 ? 0 : 1;

async function tryAllIn(copy: string): Promise<void> {
  for (const name of COPIED) await cp(name, join(copy, name), { recursive: true });
  await symlink(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'));
  for (let mutant = waiting.shift(); mutant; mutant = waiting.shift()) {
    const end = await endOf(mutant, copy);
    console.log(`${END[end]}  ${mutant.title}`);
    if (end === 'green' || end === 'none') survivors.push(mutant.title);
  }
}

/** The code with the fault in it. */
async function changed({ file, find, replace }: Mutant): Promise<string> {
  const code = await readFile(file, 'utf8');
  if (code.split(find).length !== 2) throw new Error(`${file}: expected this once: ${find}`);
  return code.replace(find, () => replace);
}

/** How its specs end. */
async function endOf(mutant: Mutant, copy: string): Promise<keyof typeof END> {
  const path = join(copy, mutant.file);
  await writeFile(path, await changed(mutant));
  try {
    const options = { cwd: copy, reject: false, timeout: TIMEOUT_MS, killSignal: 'SIGKILL' } as const;
    const { exitCode, stderr, timedOut } = await execa('node', [...JEST, ...mutant.specs], options);
    // Its specs wait for what never comes, or a fault keeps the process from ever looking at its timers.
    if (timedOut) return 'never';
    // A mutant that does not even run was not noticed by a spec.
    if (!/Tests: +(?!0 total)/.test(stderr)) {
      console.log(stderr);
      return 'none';
    }
    return exitCode === 0 ? 'green' : 'red';
  } finally {
    await cp(mutant.file, path);
  }
}
