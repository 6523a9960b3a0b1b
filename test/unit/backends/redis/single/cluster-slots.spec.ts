import { stat } from 'node:fs/promises';
import { expect, it } from '@jest/globals';
import { runPerSlot, slotOf } from '../../../../../lib/backends/redis/single/cluster-slots.js';

it('slots are those of the Cluster specification', () => {
  expect(slotOf('123456789')).toBe(0x31c3);
  expect(slotOf('user1000')).toBe(slotOf('{user1000}.following'));
  expect(slotOf('foo{}{bar}')).not.toBe(slotOf('bar'));
  expect(slotOf('foo{{bar}}zap')).toBe(slotOf('{bar'));
  expect(slotOf('foo{bar}{zap}')).toBe(slotOf('bar'));
});

interface Member {
  readonly slot: number;
  readonly name: string;
}

const members: Member[] = ['a', 'b', 'c', 'd', 'e'].map((name, index) => ({ name, slot: index % 2 }));

it('members of one slot go together, and answers stand in the order of the members', async () => {
  const asked: string[] = [];
  const answers = await runPerSlot(
    members,
    ({ slot }) => slot,
    async (together, slot) => {
      asked.push(`${slot}: ${together.map(({ name }) => name).join()}`);
      return together.map(({ name }) => `heard ${name}`);
    },
    () => 'unheard',
  );
  expect(asked).toEqual(['0: a,c,e', '1: b,d']);
  expect(answers).toEqual(['a', 'b', 'c', 'd', 'e'].map((name) => `heard ${name}`));
});

it('who gives no answer holds up those who do for a moment only', async () => {
  const answers = await runPerSlot<Member, Member | string>(
    members,
    ({ slot }) => slot,
    (together, slot) => (slot === 0 ? new Promise(() => undefined) : Promise.resolve(together)),
    () => 'unheard',
  );
  expect(answers).toEqual(['unheard', members[1], 'unheard', members[3], 'unheard']);
});

it('answers that came while the process was kept from everything are heard', async () => {
  const answers = await runPerSlot<Member, Member | string>(
    members,
    ({ slot }) => slot,
    async (together, slot) => {
      if (slot === 0) return together;
      await new Promise((resolve) => setImmediate(resolve));
      const answered = stat('.');
      const untilMs = performance.now() + 300;
      while (performance.now() < untilMs);
      await answered;
      return together;
    },
    () => 'unheard',
  );
  expect(answers).toEqual(members);
});
