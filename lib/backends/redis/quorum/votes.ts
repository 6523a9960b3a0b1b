import type { Claim } from '../../../core/backend.js';
import type { Quorum, RoundEnd } from './contest.js';
import type { Expected } from './late-votes.js';
import { wide } from './node-call.js';
import type { Voter } from './voter.js';

/** The votes that somebody has or may have. Those that led to nothing are given back, so that they block nobody. */
export class Votes {
  readonly #claim: Claim;
  readonly #againWithinMs: number;
  readonly #quorum: Quorum;
  /** The first ballot of the question, by which servers know for what they voted. */
  #sinceUs = 0;
  /** The largest of its rounds: what was given for a larger one since is not meant. */
  #ballotUs = 0;
  /** Those that may yet vote for it, in bits. */
  #owing = 0;
  #bits = 0;
  #doubtful = 0;
  /** Those that may vote for it although it is won. */
  #expected: Expected | undefined;
  #fate: 'open' | 'won' | 'lost' = 'open';

  constructor(claim: Claim, quorum: Quorum, againWithinMs = 0) {
    this.#claim = claim;
    this.#quorum = quorum;
    this.#againWithinMs = againWithinMs;
  }

  /** A round is over. */
  endRound({ ballot, owing }: Pick<RoundEnd, 'ballot' | 'owing'>): void {
    this.#sinceUs = ballot.firstUs;
    this.#ballotUs = Math.max(this.#ballotUs, ballot.us);
    this.#owing = owing;
  }

  /** A server may hold for him. */
  add(voter: Voter): void {
    if (this.#fate === 'lost') this.#giveBack(voter);
    else this.#bits |= voter.bit;
  }

  /** An answer came too late to count. */
  hearLate(voter: Voter): void {
    if (this.#expected) this.#quorum.late.settle(this.#expected, voter.bit);
  }

  /** The same where the connection was lost, over which the request may yet arrive. */
  addDoubtful(voter: Voter): void {
    if (this.#fate === 'lost') voter.giveBackLater(this.#farewell);
    else this.#doubtful |= voter.bit;
  }

  /** They are a lock now: whoever holds it gives it back. */
  won(): void {
    this.#fate = 'won';
    const late = this.#owing | this.#doubtful;
    if (late !== 0) this.#expected = this.#quorum.late.expect(this.#claim.holder, late);
  }

  /** None is wanted any more, nor any that may come. */
  lost(): void {
    this.#fate = 'lost';
    this.giveBack();
  }

  /** Makes room for those who came before. */
  giveBack(): void {
    for (const voter of this.#quorum.voters.all) {
      if (this.#bits & voter.bit) this.#giveBack(voter);
      if (this.#doubtful & voter.bit) voter.giveBackLater(this.#farewell);
    }
    this.#bits = 0;
    this.#doubtful = 0;
  }

  get #farewell() {
    const { key, holder } = this.#claim;
    return {
      key,
      holder,
      terms: `yield ${wide(this.#sinceUs)} ${wide(this.#ballotUs)} ${Math.ceil(this.#againWithinMs)}`,
    };
  }

  #giveBack(voter: Voter): void {
    voter.giveBack(this.#farewell);
  }
}
