import { describe, expect, it } from 'vitest';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { executeGroups } from '../../../../../lib/backends/typeorm/requests/statement-groups.js';
import { Timeout } from '../../../../../lib/backends/typeorm/connections/session.js';

type Results = readonly (string | undefined)[];

const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
const requests = ['a', 'b', 'c', 'd', 'e'];

/** The result of each request, and the groups in which they were executed. */
async function resultsOf(timeoutMs: number, execute: (group: readonly string[], attempt: number) => Results) {
  const [executed, results]: [(readonly string[])[], Record<string, unknown>] = [[], {}];
  const session = { timeout: new Timeout(timeoutMs), throwIfEnded: () => undefined };
  const pending = requests.map((request) => ({
    ...{ request, wasSent: false },
    onResult: (result: unknown) => (results[request] = result),
  }));
  const run = async (group: readonly string[]) => execute(group, executed.push(group));
  await executeGroups(postgres, session, [{ requests: pending, run: run as never }]);
  return { executed, results };
}

const each = (execute: unknown) => Object.fromEntries(requests.map((request) => [request, execute]));

describe('requests that are executed together', () => {
  it('are executed once, with results in their order', async () => {
    expect(await resultsOf(5_000, (group) => group.map((request) => request.toUpperCase()))).toEqual({
      executed: [requests],
      results: { a: 'A', b: 'B', c: 'C', d: 'D', e: 'E' },
    });
  });

  it('are executed again without the others if they lost a race', async () => {
    const execute = (group: readonly string[], attempt: number) =>
      group.map((request) => (attempt === 1 && 'bd'.includes(request) ? undefined : request));
    const { executed } = await resultsOf(5_000, execute);
    expect(executed).toEqual([requests, ['b', 'd']]);
  });

  it('get their results although another transaction blocks one of them', async () => {
    const execute = (group: readonly string[]) => {
      if (group.includes('c')) throw busy;
      return group;
    };
    const unknown = { kind: 'unknown', cause: busy };
    expect((await resultsOf(300, execute)).results).toEqual({ a: 'a', b: 'b', c: unknown, d: 'd', e: 'e' });
  });

  it('get their results although the database rejects a value of one of them', async () => {
    const cause = Object.assign(new Error('invalid byte sequence'), { code: '22021' });
    const { executed, results } = await resultsOf(5_000, (group) => {
      if (group.includes('c')) throw cause;
      return group;
    });
    expect(results).toEqual({ a: 'a', b: 'b', c: { kind: 'unknown', cause }, d: 'd', e: 'e' });
    expect(executed).toEqual([requests, ['a', 'b', 'c'], ['a', 'b'], ['c'], ['d', 'e']]);
  });

  it('are not executed again after any other error', async () => {
    const cause = new Error('disk full');
    const { executed, results } = await resultsOf(5_000, () => {
      throw cause;
    });
    expect(results).toEqual(each({ kind: 'unknown', cause }));
    expect(executed).toHaveLength(1);
  });

  it('that lose races until the timeout ends are taken', async () => {
    const taken = { kind: 'taken', remainingMs: 0 };
    expect((await resultsOf(0, (group) => group.map(() => undefined))).results).toEqual(each(taken));
  });
});
