import { expect, it } from 'vitest';
import { Acquisition } from '../../../../../../lib/backends/redis/quorum/operations/acquisition.js';
import type { Quorum } from '../../../../../../lib/backends/redis/quorum/operations/quorum-operation.js';
import type { ServerRequest } from '../../../../../../lib/backends/redis/quorum/server-call.js';
import type { QuorumServer } from '../../../../../../lib/backends/redis/quorum/servers/quorum-server.js';

it('a vote for the largest ballot is released even if a later round had a smaller one because clocks were set back', () => {
  const released: ServerRequest['command'][] = [];
  const server = {
    bit: 1,
    release: ({ command }: ServerRequest) => released.push(command),
  } as unknown as QuorumServer;
  const servers = {
    needed: 2,
    maxFailures: 1,
    allBits: 7,
    in: (bits: number) => (bits === 0 ? [] : [server]),
    noMajorityResult: () => ({ kind: 'unknown', cause: new Error('no majority') }),
  };
  const command = { leaseMs: 10_000, memoryMs: 10_000, retryWithinMs: 0, tokenCount: 1, instance: 'spec' };
  const acquisition = new Acquisition(
    { key: 'key', holder: 'holder', leaseMs: 10_000, instance: 'spec' },
    { command, initialServers: 7 },
    { servers } as unknown as Quorum,
  );
  const outcome = {
    sentAtMs: 0,
    endsAtMs: 0,
    latestEndMs: 0,
    timeoutMs: 500,
    wasSent: true,
    uncontacted: 0,
    unanswered: 0,
  };
  for (const reply of ['granted', 'untimely']) acquisition.onReply(server, reply, 1);
  const first = { us: 2_000, firstUs: 1_000, isRaised: false };
  expect(acquisition.conclude({ ...outcome, roundNumber: 0, ballot: first })).toBe(0);
  const second = { us: 1_500, firstUs: 1_000, isRaised: true };
  expect(acquisition.conclude({ ...outcome, roundNumber: 1, ballot: second })).toBeUndefined();
  expect(released).toEqual(['yield 0000000000001000 0000000000002000 0']);
});
