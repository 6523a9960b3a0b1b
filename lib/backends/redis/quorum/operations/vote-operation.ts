import type { AcquireRequest, AcquireResult } from '../../../../core/backend.js';
import type { AcquireCommand } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import { HeldVotes } from './held-votes.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';
import { VoteCount } from './vote-count.js';

/** What acquisitions with and without a tick share: they collect votes, round after round, and release them if they fail. */
export abstract class VoteOperation implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  abstract readonly command: string | AcquireCommand;
  abstract readonly initialServers: number;
  abstract readonly isSettled: boolean;
  result: AcquireResult | undefined;
  newestTokenUs = 0;
  protected readonly quorum: Quorum;
  protected readonly heldVotes: HeldVotes;
  /** The replies of the present round. */
  protected voteCount: VoteCount;

  constructor(request: AcquireRequest, quorum: Quorum) {
    this.key = request.key;
    this.holder = request.holder;
    this.quorum = quorum;
    this.heldVotes = new HeldVotes(request, quorum, request.retryWithinMs);
    this.voteCount = new VoteCount(quorum.servers);
  }

  abstract conclude(outcome: RoundOutcome): number | undefined;

  onReply(server: QuorumServer, reply: string, timeUs: number): void {
    this.heldVotes.onReply(server, reply);
    this.voteCount.countReply(reply, timeUs);
  }

  onUncountedReply(server: QuorumServer, reply: string): void {
    this.heldVotes.onUncountedReply(server, reply);
  }

  onNoReply(server: QuorumServer, wasSent: boolean): void {
    this.heldVotes.onNoReply(server, wasSent);
  }

  /** Ends the round: returns its count, and begins the next one. */
  protected endRound(outcome: RoundOutcome): VoteCount {
    const { voteCount } = this;
    this.heldVotes.endRound(outcome);
    // The next ballot must not build on one that the servers refuse as too far ahead.
    const ballotUs = voteCount.isRefused ? 0 : outcome.ballot.us;
    this.newestTokenUs = Math.max(this.newestTokenUs, voteCount.newestTokenUs, ballotUs);
    this.voteCount = new VoteCount(this.quorum.servers);
    return voteCount;
  }

  /** The votes are split: returns the pause before the next round. Only the acquisition with priority keeps its votes. */
  protected pauseAfter(voteCount: VoteCount, { ballot, roundNumber }: RoundOutcome): number {
    const hasPriority = voteCount.hasPriority(this.holder, ballot.firstUs);
    if (!hasPriority && !voteCount.needsLargerBallot) this.heldVotes.release();
    return voteCount.pauseMs(roundNumber, hasPriority);
  }

  protected finish(result: AcquireResult): number | undefined {
    this.result = result;
    if (result.kind === 'granted') this.heldVotes.markWon();
    else this.heldVotes.markLost();
    return undefined;
  }
}
