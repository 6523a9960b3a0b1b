import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { applyMutation, compile } from '../support/compiled-code.js';
import type { FaultList } from './fault-list.js';
import { type Mutant, mutants } from './mutants.js';

const COPIED = ['lib', 'test', 'package.json', 'jest.config.js', 'tsconfig.json'];
/** One process, so that all of it ends when it is killed. */
const JEST = ['--experimental-vm-modules', '--no-warnings', 'node_modules/jest/bin/jest.js'];
const JEST_OPTIONS = ['--bail', '--runInBand'];
/** Specs that are green have ended by then. */
const TIMEOUT_MS = 240_000;

/** The mutants, each of which the specs that it names must detect. */
export const bySpecs: FaultList<Mutant> = {
  faults: mutants,
  lanes: availableParallelism(),
  async open() {
    const copy = await mkdtemp(join(tmpdir(), 'distributed-lock-mutants-'));
    for (const name of COPIED) await cp(name, join(copy, name), { recursive: true });
    await symlink(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'));
    // Compiled once: the processes of specs need it, and Jest would otherwise compile all of it for each mutant.
    const code = await compile();
    const put = (file: string, source: string) =>
      Promise.all([writeFile(join(copy, file), source), code.put(file, source)]);
    return {
      async detect(mutant) {
        const source = await readFile(join(copy, mutant.file), 'utf8');
        await put(mutant.file, applyMutation(source, mutant));
        await code.bundleWorkers();
        try {
          return await runSpecs(mutant.specs, { cwd: copy, env: { TEST_CODE: code.folder } });
        } finally {
          await put(mutant.file, source);
        }
      },
      async close() {
        await Promise.all([rm(copy, { recursive: true, force: true }), code.remove()]);
        return [];
      },
    };
  },
};

async function runSpecs(specs: readonly string[], place: { cwd: string; env: Record<string, string> }) {
  const options = { ...place, reject: false, timeout: TIMEOUT_MS, killSignal: 'SIGKILL' } as const;
  const { exitCode, stderr, timedOut } = await execa('node', [...JEST, ...JEST_OPTIONS, ...specs], options);
  // The specs wait for what never comes, or the fault keeps the process from ever looking at its timers.
  if (timedOut) return { isDetected: true, text: 'its specs never end' };
  // A mutant that does not even run was not detected by a spec.
  if (!/Tests: +(?!0 total)/.test(stderr)) return { isDetected: false, text: `no spec ran\n${stderr}` };
  return exitCode === 0 ? { isDetected: false, text: 'green' } : { isDetected: true, text: 'red' };
}
