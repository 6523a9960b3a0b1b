import { writeFile } from 'node:fs/promises';
import { execa } from 'execa';
import { CONTENDER_CORE, SERVER_CORE } from './pin.js';

/** Ends with the process that started it, however that ends. */
const SPIN = `while (process.ppid === ${process.pid});`;

/**
 * Keeps the cores of a pinned bench from going idle, by processes that run only while nothing else wants to. An idle core of a
 * virtual machine halts, and to wake it may take as long as a request. Who pauses often but briefly would then seem faster than
 * who sends fewer requests. Returns how to end it.
 */
export async function keepCoresAwake(): Promise<() => Promise<unknown>> {
  const spinning = [SERVER_CORE, CONTENDER_CORE].map((core) =>
    execa('taskset', ['-c', `${core}`, 'chrt', '--idle', '0', process.execPath, '-e', SPIN], {
      ...{ reject: false, detached: true },
    }),
  );
  // Linux may share a core among sessions first, and only then by priority. Without autogroups there is no such file.
  for (const { pid } of spinning) await writeFile(`/proc/${pid}/autogroup`, '19').catch(() => undefined);
  return () => {
    for (const spinner of spinning) spinner.kill('SIGKILL');
    return Promise.all(spinning);
  };
}
