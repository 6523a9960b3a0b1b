import type { Deadline } from './deadline.js';
import type { Dialect } from './dialect.js';

/** Many, because SQLite does not queue its writers: each of them finds it busy again and again. */
const MOST_TRIES = 100;
const LONGEST_PAUSE_MS = 30;

/** Answered by a step that lost a race: somebody changed the row between two of its statements. */
export const RACED: unique symbol = Symbol('raced');

/**
 * Takes a step again while only others were in the way and there is time. Ends as the last try did, be it with
 * {@link RACED} or with the error of a busy database.
 */
export async function persist<T>(
  { faultOf }: Dialect,
  deadline: Deadline,
  step: () => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const mayTryAgain = async () => tries < MOST_TRIES && (await deadline.pause(pauseMs(tries)));
    try {
      const answer = await step();
      if (answer !== RACED || !(await mayTryAgain())) return answer;
    } catch (cause) {
      if (faultOf(cause) !== 'busy' || !(await mayTryAgain())) throw cause;
    }
  }
}

/** Random, so that those who met once do not meet again. */
const pauseMs = (tries: number) => Math.random() * Math.min(2 ** tries, LONGEST_PAUSE_MS);
