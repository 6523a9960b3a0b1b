import { expect, it } from '@jest/globals';
import type { Quorum } from '../../../../lib/backends/redis/quorum/contest.js';
import type { NodeRequest } from '../../../../lib/backends/redis/quorum/node-call.js';
import type { Voter } from '../../../../lib/backends/redis/quorum/voter.js';
import { Votes } from '../../../../lib/backends/redis/quorum/votes.js';

it('a vote for the largest ballot is given back, also if a later round had a smaller one, as clocks were set back', () => {
  const givenBack: NodeRequest['terms'][] = [];
  const voter = { bit: 1, giveBack: ({ terms }: NodeRequest) => givenBack.push(terms) } as unknown as Voter;
  const quorum = { voters: { all: [voter] } } as unknown as Quorum;
  const votes = new Votes({ key: 'key', holder: 'holder' }, quorum);
  votes.endRound({ ballot: { us: 2_000, firstUs: 1_000, isRaised: true }, owing: 0 });
  votes.add(voter);
  votes.endRound({ ballot: { us: 1_500, firstUs: 1_000, isRaised: true }, owing: 0 });
  votes.lost();
  expect(givenBack).toEqual(['yield 0000000000001000 0000000000002000 0']);
});
