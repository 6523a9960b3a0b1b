import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { PendingVotes } from '../../../../../../lib/backends/redis/quorum/operations/pending-votes.js';
import { until } from '../../../../../support/until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

it('a server that refuses a copy of a lock at each renewal is remembered once', async () => {
  const pendingVotes = new PendingVotes();
  const [refusing, late] = [0b01, 0b10];
  const fail = () => {
    const pendingVote = pendingVotes.add('holder', refusing);
    pendingVotes.fail(pendingVote, refusing);
    return new WeakRef(pendingVote);
  };
  const refused = [fail(), fail()];
  const settled = pendingVotes.add('holder', late);
  await until(() => {
    collectGarbage();
    return refused.every((pendingVote) => pendingVote.deref() === undefined);
  });
  pendingVotes.settle(settled, late);
  expect(pendingVotes.take('holder')).toBe(refusing);
  expect(pendingVotes.take('holder')).toBe(0);
});

it('a copy that fails after the release of its lock is none of a later lock of that holder', () => {
  const pendingVotes = new PendingVotes();
  const before = pendingVotes.add('holder', 0b01);
  expect(pendingVotes.take('holder')).toBe(0b01);
  pendingVotes.add('holder', 0b10);
  pendingVotes.fail(before, 0b01);
  expect(pendingVotes.take('holder')).toBe(0b10);
});
