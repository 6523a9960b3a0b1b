import { expect, it } from '@jest/globals';
import { HeldVotes } from '../../../../../../lib/backends/redis/quorum/operations/held-votes.js';
import type { Quorum } from '../../../../../../lib/backends/redis/quorum/operations/quorum-operation.js';
import type { ServerRequest } from '../../../../../../lib/backends/redis/quorum/server-call.js';
import type { QuorumServer } from '../../../../../../lib/backends/redis/quorum/servers/quorum-server.js';

it('a vote for the largest ballot is released even if a later round had a smaller one because clocks were set back', () => {
  const released: ServerRequest['command'][] = [];
  const server = {
    bit: 1,
    release: ({ command }: ServerRequest) => released.push(command),
  } as unknown as QuorumServer;
  const quorum = { servers: { in: (bits: number) => (bits === 0 ? [] : [server]) } } as unknown as Quorum;
  const votes = new HeldVotes({ key: 'key', holder: 'holder' }, quorum);
  votes.endRound({ ballot: { us: 2_000, firstUs: 1_000, isRaised: true }, unanswered: 0 });
  votes.onReply(server, 'granted');
  votes.endRound({ ballot: { us: 1_500, firstUs: 1_000, isRaised: true }, unanswered: 0 });
  votes.markLost();
  expect(released).toEqual(['yield 0000000000001000 0000000000002000 0']);
});
