import type { Deadline } from './deadline.js';
import type { Dialect } from './dialect.js';

/** Many, because SQLite does not queue its writers: each of them finds it busy again and again. */
export const MOST_TRIES = 100;
const LONGEST_PAUSE_MS = 30;

/** Takes a step again while only others are in the way and there is time; then ends with the last error. */
export async function persist<T>(
  { faultOf }: Pick<Dialect, 'faultOf'>,
  deadline: Deadline,
  step: () => T | Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await step();
    } catch (cause) {
      if (faultOf(cause) !== 'busy' || tries >= MOST_TRIES) throw cause;
      if (!(await deadline.pause(pauseMs(tries)))) throw cause;
    }
  }
}

/** Random, so that those who met once do not meet again. */
export const pauseMs = (tries: number) => Math.random() * Math.min(2 ** tries, LONGEST_PAUSE_MS);
