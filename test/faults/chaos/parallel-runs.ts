import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { RedEpisode, Tally } from './report.js';

interface ParallelRunOptions {
  /** Of the first episode of the first kind. */
  readonly seed: number;
  /** What else all of them are told. */
  readonly args: readonly string[];
  readonly interrupted: AbortSignal;
}

/** So that no two kinds play the same plan. */
const SEEDS_APART = 1_000;

/**
 * Runs this program once for each kind of store, all at the same time, so that none of them can disturb another one. What it
 * prints is told apart by its name.
 */
export async function runInParallel(
  backends: readonly string[],
  { seed, args, interrupted }: ParallelRunOptions,
): Promise<Tally[]> {
  const folder = mkdtempSync(join(tmpdir(), 'lock-chaos-tallies-'));
  try {
    return await Promise.all(
      backends.map(async (backend, index) => {
        const out = join(folder, backend);
        const own = ['--backend', backend, '--seed', `${seed + index * SEEDS_APART}`, '--out', out];
        const all = [...process.execArgv, process.argv[1]!, ...args, ...own];
        // In a group of its own, so that it hears of Ctrl-C from us only.
        const run = spawn(process.execPath, all, { detached: true, stdio: ['ignore', 'pipe', 'inherit'] });
        createInterface({ input: run.stdout }).on('line', (line) => console.log(`${backend}: ${line}`));
        const interrupt = () => run.kill('SIGTERM');
        interrupted.addEventListener('abort', interrupt);
        const [code, signal] = (await once(run, 'close')) as [number | null, string | null];
        interrupted.removeEventListener('abort', interrupt);
        return tallyOf(out, backend, `the run ended with ${code ?? signal}`);
      }),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A run that ended red without saying why has crashed. */
function tallyOf(out: string, backend: string, end: string): Tally {
  const crash: RedEpisode = {
    backend,
    seed: NaN,
    what: [end],
    command: 'it crashed, see what it printed last',
  };
  const none = { backend, minutes: 0, episodes: 0, faults: 0, nemeses: [], counts: {}, red: [] };
  const { tallies, isOver } = existsSync(out)
    ? (JSON.parse(readFileSync(out, 'utf8')) as { tallies: Tally[]; isOver: boolean })
    : { tallies: [], isOver: false };
  const tally = tallies[0] ?? none;
  return isOver ? tally : { ...tally, red: [...tally.red, crash] };
}
