import { expect, it } from '@jest/globals';
import type { Quorum } from '../../../../../../lib/backends/redis/quorum/operations/quorum-operation.js';
import type { ServerRequest } from '../../../../../../lib/backends/redis/quorum/server-call.js';
import type { QuorumServer } from '../../../../../../lib/backends/redis/quorum/servers/quorum-server.js';
import { HeldVotes } from '../../../../../../lib/backends/redis/quorum/operations/held-votes.js';

it('a vote for the largest ballot is given back, also if a later round had a smaller one, as clocks were set back', () => {
  const givenBack: ServerRequest['command'][] = [];
  const voter = {
    bit: 1,
    release: ({ command: terms }: ServerRequest) => givenBack.push(terms),
  } as unknown as QuorumServer;
  const quorum = { servers: { all: [voter] } } as unknown as Quorum;
  const votes = new HeldVotes({ key: 'key', holder: 'holder' }, quorum);
  votes.endRound({ ballot: { us: 2_000, firstUs: 1_000, isRaised: true }, unanswered: 0 });
  votes.add(voter);
  votes.endRound({ ballot: { us: 1_500, firstUs: 1_000, isRaised: true }, unanswered: 0 });
  votes.markLost();
  expect(givenBack).toEqual(['yield 0000000000001000 0000000000002000 0']);
});
