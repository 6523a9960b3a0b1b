import type { Unknown } from '../../core/backend.js';
import { unknown } from '../../core/backend.js';
import type { Deadline } from './deadline.js';
import type { Dialect } from './dialect.js';
import { MOST_TRIES, pauseMs } from './persist.js';

/** Stands for the answer to a request that lost a race: somebody changed the row while it was looked at. */
export const RACED: unique symbol = Symbol('raced');

type Told<Answer> = Answer | Unknown | typeof RACED;

/**
 * Asks for all in one statement. As long as there is time, those who lost a race are asked for again; and where others
 * were in the way, who may have been in the way of a single one, each half by itself.
 */
export async function askTogether<Request, Answer>(
  { faultOf }: Pick<Dialect, 'faultOf'>,
  deadline: Deadline,
  requests: readonly Request[],
  ask: (requests: readonly Request[]) => Promise<readonly (Answer | typeof RACED)[]>,
): Promise<readonly Told<Answer>[]> {
  const told = new Map<Request, Told<Answer>>();
  let groups = [requests];
  for (let tries = 1; groups.length > 0; tries += 1) {
    const again: (readonly Request[])[] = [];
    for (const group of groups) {
      try {
        const answers = await ask(group);
        group.forEach((request, index) => told.set(request, answers[index] ?? RACED));
        const raced = group.filter((request) => told.get(request) === RACED);
        if (raced.length > 0) again.push(raced);
      } catch (cause) {
        for (const request of group) told.set(request, unknown(cause));
        if (faultOf(cause) === 'busy') again.push(...halvesOf(group));
      }
    }
    if (again.length > 0 && (tries >= MOST_TRIES || !(await deadline.pause(pauseMs(tries))))) break;
    groups = again;
  }
  return requests.map((request) => told.get(request) ?? RACED);
}

const halvesOf = <T>(items: readonly T[]): readonly (readonly T[])[] => {
  if (items.length === 1) return [items];
  const middle = Math.ceil(items.length / 2);
  return [items.slice(0, middle), items.slice(middle)];
};
