import { stat } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { runPerSlot, slotOf } from '../../../../../lib/backends/redis/single/cluster-slots.js';
import { Gate } from '../../../../support/gate.js';
import { until } from '../../../../support/until.js';

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

const nameOf = ({ name }: Member) => name;
const slotOfMember = ({ slot }: Member) => slot;
const isUnknown = (result: unknown) => typeof result === 'object';

it('members of one slot run as one group, and results are in the order of the members', async () => {
  const ran: string[] = [];
  const results = await runPerSlot(members, {
    slotOfMember,
    async run(group, slot) {
      ran.push(`${slot}: ${group.map(nameOf).join()}`);
      return Promise.resolve(group.map(({ name }) => `result of ${name}`));
    },
    timeoutMs: 60_000,
  });
  expect(ran).toEqual(['0: a,c,e', '1: b,d']);
  expect(results).toEqual(['a', 'b', 'c', 'd', 'e'].map((name) => `result of ${name}`));
});

it('the results of a slot are reported while another node is silent', async () => {
  const silence = new Gate();
  const reported: string[] = [];
  const all = runPerSlot(members, {
    slotOfMember,
    async run(group, slot) {
      if (slot === 0) await silence.passed;
      return group.map(nameOf);
    },
    timeoutMs: 60_000,
    onResult: (name, index) => reported.push(`${index}: ${name}`),
  });
  await until(() => reported.length === 2);
  expect(reported).toEqual(['1: b', '3: d']);
  silence.open();
  expect(await all).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(reported.slice(2)).toEqual(['0: a', '2: c', '4: e']);
});

it('replies that arrived while the process was blocked count', async () => {
  const results = await runPerSlot(members, {
    slotOfMember,
    async run(group, slot) {
      if (slot === 0) return group.map(nameOf);
      await new Promise((resolve) => setImmediate(resolve));
      const read = stat('.');
      const untilMs = performance.now() + 300;
      while (performance.now() < untilMs);
      await read;
      return group.map(nameOf);
    },
    timeoutMs: 250,
  });
  expect(results).toEqual(['a', 'b', 'c', 'd', 'e']);
});

it('when the time is over, the results of a silent node are unknown', async () => {
  const results = await runPerSlot(members, {
    slotOfMember,
    run: (group, slot) =>
      slot === 0 ? new Promise<string[]>(() => undefined) : Promise.resolve(group.map(nameOf)),
    timeoutMs: 10,
  });
  expect(results.map((result) => (isUnknown(result) ? 'unknown' : result))).toEqual([
    ...['unknown', 'b', 'unknown', 'd', 'unknown'],
  ]);
});
