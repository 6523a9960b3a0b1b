import { type Unknown, unknown } from '../../core/backend.js';
import type { Deadline } from './deadline.js';
import type { Dialect } from './dialect.js';
import { MOST_TRIES, pauseMs } from './persist.js';

/** Stands for the answer to a question that lost a race: somebody changed the row while it was looked at. */
export const RACED: unique symbol = Symbol('raced');

type Told<Answer> = Answer | Unknown | typeof RACED;

interface Asking<Question, Answer> {
  readonly dialect: Pick<Dialect, 'faultOf'>;
  readonly deadline: Deadline;
  /** Those of one group are asked together, and what goes wrong concerns all of them. */
  readonly groups: readonly (readonly Question[])[];
  /** Answers in the order of the questions. */
  ask(group: readonly Question[]): Promise<readonly (Answer | typeof RACED)[]>;
  /** Called once for each question, as soon as its answer stands. */
  tell(question: Question, answer: Told<Answer>): void;
}

/**
 * Asks each group in one statement. As long as there is time, those who lost a race are asked again; and where others were in
 * the way, who may have been in the way of a single one, each half by itself. Where the database does not take a value,
 * the halves are asked at once.
 */
export async function askTogether<Question, Answer>(asking: Asking<Question, Answer>): Promise<void> {
  let { groups } = asking;
  for (let tries = 1; ; tries += 1) {
    const open = new Map<Question, Told<Answer>>();
    const again: (readonly Question[])[] = [];
    for (const group of groups) {
      const left = await askOnce(asking, group);
      for (const [question, answer] of left) open.set(question, answer);
      again.push(...groupsOf(left));
    }
    if (open.size === 0) return;
    if (tries >= MOST_TRIES || !(await asking.deadline.pause(pauseMs(tries)))) {
      for (const [question, answer] of open) asking.tell(question, answer);
      return;
    }
    groups = again;
  }
}

/** Tells what stands, and answers what may yet become better. */
async function askOnce<Question, Answer>(
  asking: Asking<Question, Answer>,
  group: readonly Question[],
): Promise<readonly (readonly [Question, Told<Answer>])[]> {
  const { dialect, ask, tell } = asking;
  try {
    const answers = await ask(group);
    const raced = group.filter((_, index) => answers[index] === RACED);
    group.forEach((question, index) => {
      const answer = answers[index] ?? RACED;
      if (answer !== RACED) tell(question, answer);
    });
    return raced.map((question) => [question, RACED]);
  } catch (cause) {
    const fault = dialect.faultOf(cause);
    if (fault === 'busy') return group.map((question) => [question, unknown(cause)]);
    if (fault === 'value' && group.length > 1) {
      const [some, others] = halvesOf(group) as [readonly Question[], readonly Question[]];
      return [...(await askOnce(asking, some)), ...(await askOnce(asking, others))];
    }
    for (const question of group) tell(question, unknown(cause));
    return [];
  }
}

function groupsOf<Question>(
  left: readonly (readonly [Question, unknown])[],
): readonly (readonly Question[])[] {
  const questions = left.map(([question]) => question);
  const [first] = left;
  if (first?.[1] === RACED) return [questions];
  return halvesOf(questions);
}

function halvesOf<Item>(items: readonly Item[]): readonly (readonly Item[])[] {
  const middle = Math.ceil(items.length / 2);
  return [items.slice(0, middle), items.slice(middle)].filter((half) => half.length > 0);
}
