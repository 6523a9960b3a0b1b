import { stat } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { runPerSlot, slotOf } from '../../../../../lib/backends/redis/single/cluster-slots.js';

it('slots are computed as the Cluster specification says', () => {
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

it('members of one slot run group, and results are in the order of the members', async () => {
  const ran: string[] = [];
  const results = await runPerSlot(
    members,
    ({ slot }) => slot,
    async (group, slot) => {
      ran.push(`${slot}: ${group.map(({ name }) => name).join()}`);
      return group.map(({ name }) => `result of ${name}`);
    },
    () => 'timeout',
  );
  expect(ran).toEqual(['0: a,c,e', '1: b,d']);
  expect(results).toEqual(['a', 'b', 'c', 'd', 'e'].map((name) => `result of ${name}`));
});

it('a silent node delays the results of the others only briefly', async () => {
  const results = await runPerSlot<Member, Member | string>(
    members,
    ({ slot }) => slot,
    (group, slot) => (slot === 0 ? new Promise(() => undefined) : Promise.resolve(group)),
    () => 'timeout',
  );
  expect(results).toEqual(['timeout', members[1], 'timeout', members[3], 'timeout']);
});

it('replies that arrived while the process was blocked count', async () => {
  const results = await runPerSlot<Member, Member | string>(
    members,
    ({ slot }) => slot,
    async (group, slot) => {
      if (slot === 0) return group;
      await new Promise((resolve) => setImmediate(resolve));
      const read = stat('.');
      const untilMs = performance.now() + 300;
      while (performance.now() < untilMs);
      await read;
      return group;
    },
    () => 'timeout',
  );
  expect(results).toEqual(members);
});
