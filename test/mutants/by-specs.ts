import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { execa } from 'execa';
import { applyMutation, compile } from '../support/compiled-code.js';
import type { FaultList } from './fault-list.js';
import { type Mutant, mutants } from './mutants.js';

const COPIED = ['lib', 'test', 'package.json', 'vitest.config.ts', 'tsconfig.json'];
const VITEST = ['node_modules/vitest/vitest.mjs', 'run', '--bail=1', '--maxWorkers=1', '--reporter=default'];
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
    // Compiled once: the processes of specs need it, and each run would otherwise compile all of it for each mutant.
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
  // A process group, so that Vitest's worker ends too, also one that is in an endless loop.
  const env = { ...place.env, NO_COLOR: '1' };
  const options = { ...place, env, all: true, reject: false, detached: true } as const;
  const run = execa('node', [...VITEST, ...specs], options);
  const end = () => run.pid && process.kill(-run.pid, 'SIGKILL');
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  limit.addEventListener('abort', end);
  process.on('exit', end);
  const { exitCode, all } = await run;
  process.off('exit', end);
  limit.removeEventListener('abort', end);
  // The specs wait for what never comes, or the fault keeps the process from ever looking at its timers.
  if (limit.aborted) return { isDetected: true, text: 'its specs never end' };
  // A mutant that does not even run was not detected by a spec.
  if (!/Tests +\d/.test(all)) return { isDetected: false, text: `no spec ran\n${all}` };
  return exitCode === 0 ? { isDetected: false, text: 'green' } : { isDetected: true, text: 'red' };
}
