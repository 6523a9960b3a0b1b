import { describe, expect, it } from '@jest/globals';
import { Deadline } from '../../../../lib/backends/typeorm/deadline.js';
import { postgres } from '../../../../lib/backends/typeorm/postgres.js';
import { RACED, askTogether } from '../../../../lib/backends/typeorm/together.js';

const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
const requests = ['a', 'b', 'c', 'd', 'e'];

describe('requests that are asked together', () => {
  it('are asked once, and answered in their order', async () => {
    using deadline = new Deadline(5_000);
    const asked: (readonly string[])[] = [];
    const told = await askTogether(postgres, deadline, requests, async (group) => {
      asked.push(group);
      return group.map((request) => request.toUpperCase());
    });
    expect(told).toEqual(['A', 'B', 'C', 'D', 'E']);
    expect(asked).toEqual([requests]);
  });

  it('are asked again if they lost a race, without the others', async () => {
    using deadline = new Deadline(5_000);
    const asked: (readonly string[])[] = [];
    const told = await askTogether(postgres, deadline, requests, async (group) => {
      asked.push(group);
      return group.map((request) => (asked.length === 1 && 'bd'.includes(request) ? RACED : request));
    });
    expect(told).toEqual(requests);
    expect(asked).toEqual([requests, ['b', 'd']]);
  });

  it('get their answers although somebody stands in the way of one of them', async () => {
    using deadline = new Deadline(300);
    const told = await askTogether(postgres, deadline, requests, async (group) => {
      if (group.includes('c')) throw busy;
      return group;
    });
    expect(told).toEqual(['a', 'b', { kind: 'unknown', cause: busy }, 'd', 'e']);
  });

  it('are not asked again after any other error', async () => {
    using deadline = new Deadline(5_000);
    const cause = new Error('disk full');
    let tries = 0;
    const told = await askTogether(postgres, deadline, requests, async () => {
      tries += 1;
      throw cause;
    });
    expect(told).toEqual(requests.map(() => ({ kind: 'unknown', cause })));
    expect(tries).toBe(1);
  });

  it('that race to the end of their time are left with that', async () => {
    using deadline = new Deadline(0);
    expect(await askTogether(postgres, deadline, ['a'], async () => [RACED])).toEqual([RACED]);
  });
});
