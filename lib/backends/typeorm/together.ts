import { type Unknown, unknown } from '../../core/backend.js';
import type { Deadline } from './deadline.js';
import type { Dialect } from './dialect.js';
import { MOST_TRIES, pauseMs } from './persist.js';

/** Stands for the answer to a request that lost a race: somebody changed the row while it was looked at. */
export const RACED: unique symbol = Symbol('raced');

type Told<Answer> = Answer | Unknown | typeof RACED;
type Ask<Request, Answer> = (requests: readonly Request[]) => Promise<readonly (Answer | typeof RACED)[]>;

/**
 * Asks for all in one statement. As long as there is time, those who lost a race are asked for again; and where others
 * were in the way, who may have been in the way of a single one, each half by itself.
 */
export async function askTogether<Request, Answer>(
  { faultOf }: Pick<Dialect, 'faultOf'>,
  deadline: Deadline,
  requests: readonly Request[],
  ask: Ask<Request, Answer>,
): Promise<readonly Told<Answer>[]> {
  const first = await tell(requests, ask);
  let again = groupsOf(requests, first, faultOf);
  if (again.length === 0) return first;
  const told = new Map<Request, Told<Answer>>(
    requests.map((request, index) => [request, first[index] ?? RACED]),
  );
  for (let tries = 1; again.length > 0 && tries < MOST_TRIES; tries += 1) {
    if (!(await deadline.pause(pauseMs(tries)))) break;
    const groups = again;
    again = [];
    for (const group of groups) {
      const answers = await tell(group, ask);
      group.forEach((request, index) => told.set(request, answers[index] ?? RACED));
      again.push(...groupsOf(group, answers, faultOf));
    }
  }
  return [...told.values()];
}

async function tell<Request, Answer>(
  requests: readonly Request[],
  ask: Ask<Request, Answer>,
): Promise<readonly Told<Answer>[]> {
  try {
    return await ask(requests);
  } catch (cause) {
    return requests.map(() => unknown(cause));
  }
}

/** Who is to be asked for again, and with whom. */
function groupsOf<Request>(
  requests: readonly Request[],
  told: readonly unknown[],
  faultOf: Dialect['faultOf'],
): (readonly Request[])[] {
  const raced = requests.filter((_, index) => told[index] === RACED);
  if (raced.length > 0) return [raced];
  const [first] = told as [Partial<Unknown>];
  if (first.kind !== 'unknown' || faultOf(first.cause) !== 'busy') return [];
  const middle = Math.ceil(requests.length / 2);
  return [requests.slice(0, middle), requests.slice(middle)].filter((half) => half.length > 0);
}
