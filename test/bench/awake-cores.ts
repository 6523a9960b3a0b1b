import { execa } from 'execa';
import { CONTENDER_CORE, SERVER_CORE } from './pin.js';

const SPIN = ['--idle', '0', process.execPath, '-e', 'for (;;);'];

/**
 * Keeps the cores of a pinned bench from going idle, by processes that run only while nothing else wants to. An idle core of a
 * virtual machine halts, and to wake it may take as long as a request. Who pauses often but briefly would then seem faster than
 * who sends fewer requests. Returns how to end it.
 */
export function keepCoresAwake(): () => Promise<unknown> {
  const spinning = [SERVER_CORE, CONTENDER_CORE].map((core) =>
    execa('taskset', ['-c', `${core}`, 'chrt', ...SPIN], { reject: false }),
  );
  return () => {
    for (const spinner of spinning) spinner.kill('SIGKILL');
    return Promise.all(spinning);
  };
}
