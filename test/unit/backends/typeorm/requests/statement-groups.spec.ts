import { describe, expect, it } from '@jest/globals';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { RACED, executeGroups } from '../../../../../lib/backends/typeorm/requests/statement-groups.js';
import { Timeout } from '../../../../../lib/backends/typeorm/requests/timeout.js';

type Answers = readonly (string | typeof RACED)[];

const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
const questions = ['a', 'b', 'c', 'd', 'e'];

/** What each question was told, and in which groups they were asked. */
async function told(limitMs: number, answer: (group: readonly string[], tries: number) => Answers) {
  using deadline = new Timeout(limitMs);
  const [asked, answers]: [(readonly string[])[], Record<string, unknown>] = [[], {}];
  await executeGroups<string, string>({
    ...{ dialect: postgres, timeout: deadline, groups: [questions] },
    execute: async (group) => answer(group, asked.push(group)),
    onResult: (question, got) => (answers[question] = got),
  });
  return { asked, told: answers };
}

const each = (answer: unknown) => Object.fromEntries(questions.map((question) => [question, answer]));

describe('questions that are asked together', () => {
  it('are asked once, and answered in their order', async () => {
    expect(await told(5_000, (group) => group.map((question) => question.toUpperCase()))).toEqual({
      asked: [questions],
      told: { a: 'A', b: 'B', c: 'C', d: 'D', e: 'E' },
    });
  });

  it('are asked again if they lost a race, without the others', async () => {
    const answer = (group: readonly string[], tries: number) =>
      group.map((question) => (tries === 1 && 'bd'.includes(question) ? RACED : question));
    const { asked } = await told(5_000, answer);
    expect(asked).toEqual([questions, ['b', 'd']]);
  });

  it('get their answers although somebody stands in the way of one of them', async () => {
    const answer = (group: readonly string[]) => {
      if (group.includes('c')) throw busy;
      return group;
    };
    const doubt = { kind: 'unknown', cause: busy };
    expect((await told(300, answer)).told).toEqual({ a: 'a', b: 'b', c: doubt, d: 'd', e: 'e' });
  });

  it('get their answers although the database does not take a value of one of them', async () => {
    const cause = Object.assign(new Error('invalid byte sequence'), { code: '22021' });
    const { asked, told: answers } = await told(5_000, (group) => {
      if (group.includes('c')) throw cause;
      return group;
    });
    expect(answers).toEqual({ a: 'a', b: 'b', c: { kind: 'unknown', cause }, d: 'd', e: 'e' });
    expect(asked).toEqual([questions, ['a', 'b', 'c'], ['a', 'b'], ['c'], ['d', 'e']]);
  });

  it('are not asked again after any other error', async () => {
    const cause = new Error('disk full');
    const { asked, told: answers } = await told(5_000, () => {
      throw cause;
    });
    expect(answers).toEqual(each({ kind: 'unknown', cause }));
    expect(asked).toHaveLength(1);
  });

  it('that race to the end of their time are left with that', async () => {
    expect((await told(0, (group) => group.map(() => RACED))).told).toEqual(each(RACED));
  });
});
