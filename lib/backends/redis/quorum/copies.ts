import type { LateVotes } from './late-votes.js';
import type { NodeRequest } from './node-call.js';
import { tell } from './tell.js';
import type { Voter } from './voter.js';

interface Copies {
  /** To hold locks that others hold. */
  readonly requests: readonly NodeRequest[];
  /** They arrive until then, or not at all. */
  readonly untilMs: number;
  readonly late: LateVotes;
}

/** Takes locks to one more server. Who gives one back before that has answered has to tell it again. */
export async function copyTo(voter: Voter, { requests, untilMs, late }: Copies): Promise<void> {
  const expected = requests.map(({ holder }) => late.expect(holder, voter.bit));
  const told = await tell(voter, requests, untilMs);
  if (told) for (const one of expected) late.settle(one, voter.bit);
}
