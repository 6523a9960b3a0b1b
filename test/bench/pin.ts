import { availableParallelism } from 'node:os';
import { execa } from 'execa';

/** Where the servers run, and where the contender runs, while a bench is pinned. */
export const SERVER_CORE = 0;
export const CONTENDER_CORE = 1;
export const ALL_CORES = `0-${availableParallelism() - 1}`;

export const canPin = async (): Promise<boolean> =>
  availableParallelism() > 1 && !(await execa('taskset', ['--version'], { reject: false })).failed;

/** Moves a process to some cores, with its threads and what it will start. */
export async function pin(pid: number | undefined, cores: string): Promise<void> {
  // A process that has ended already tells so itself.
  if (pid !== undefined) await execa('taskset', ['-acp', cores, `${pid}`], { reject: false });
}
