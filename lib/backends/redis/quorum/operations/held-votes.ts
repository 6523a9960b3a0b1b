import type { Claim } from '../../../../core/backend.js';
import type { Quorum, RoundOutcome } from './quorum-operation.js';
import type { PendingVote } from './pending-votes.js';
import { fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';

/** The votes that somebody has or may have. Those that led to nothing are given back, so that they block nobody. */
export class HeldVotes {
  readonly #claim: Claim;
  readonly #retryWithinMs: number;
  readonly #quorum: Quorum;
  /** The first ballot of the question, by which servers know for what they voted. */
  #firstBallotUs = 0;
  /** The largest of its rounds: what was given for a larger one since is not meant. */
  #largestBallotUs = 0;
  /** Those that may yet vote for it, in bits. */
  #unanswered = 0;
  #serverBits = 0;
  #uncertain = 0;
  /** Those that may vote for it although it is won. */
  #pendingVote: PendingVote | undefined;
  #outcome: 'open' | 'won' | 'lost' = 'open';

  constructor(claim: Claim, quorum: Quorum, retryWithinMs = 0) {
    this.#claim = claim;
    this.#quorum = quorum;
    this.#retryWithinMs = retryWithinMs;
  }

  /** A round is over. */
  endRound({ ballot, unanswered }: Pick<RoundOutcome, 'ballot' | 'unanswered'>): void {
    this.#firstBallotUs = ballot.firstUs;
    this.#largestBallotUs = Math.max(this.#largestBallotUs, ballot.us);
    this.#unanswered = unanswered;
  }

  /** A server may hold for him. */
  add(server: QuorumServer): void {
    if (this.#outcome === 'lost') this.#releaseAt(server);
    else this.#serverBits |= server.bit;
  }

  /** An answer came too late to count. */
  onLateReply(server: QuorumServer): void {
    if (this.#pendingVote) this.#quorum.pendingVotes.settle(this.#pendingVote, server.bit);
  }

  /** The same where the connection was lost, over which the request may yet arrive. */
  addUncertain(server: QuorumServer): void {
    if (this.#outcome === 'lost') server.releaseLater(this.#releaseRequest);
    else this.#uncertain |= server.bit;
  }

  /** They are a lock now: whoever holds it gives it back. */
  markWon(): void {
    this.#outcome = 'won';
    const pendingBits = this.#unanswered | this.#uncertain;
    if (pendingBits !== 0) this.#pendingVote = this.#quorum.pendingVotes.add(this.#claim.holder, pendingBits);
  }

  /** None is wanted any more, nor any that may come. */
  markLost(): void {
    this.#outcome = 'lost';
    this.release();
  }

  /** Makes room for those who came before. */
  release(): void {
    for (const server of this.#quorum.servers.all) {
      if (this.#serverBits & server.bit) this.#releaseAt(server);
      if (this.#uncertain & server.bit) server.releaseLater(this.#releaseRequest);
    }
    this.#serverBits = 0;
    this.#uncertain = 0;
  }

  get #releaseRequest() {
    const { key, holder } = this.#claim;
    return {
      key,
      holder,
      command: `yield ${fixedWidth(this.#firstBallotUs)} ${fixedWidth(this.#largestBallotUs)} ${Math.ceil(this.#retryWithinMs)}`,
    };
  }

  #releaseAt(server: QuorumServer): void {
    server.release(this.#releaseRequest);
  }
}
