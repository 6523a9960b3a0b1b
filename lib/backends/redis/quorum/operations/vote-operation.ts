import type { AcquireRequest } from '../../../../core/backend.js';
import type { AcquireResult } from '../../../../core/backend-results.js';
import { type AcquireCommand, type ServerRequest, fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { PendingVote } from './pending-votes.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';
import { VoteCount } from './vote-count.js';

/**
 * What acquisitions with and without a tick share: they collect votes, round after round. If they fail they release the
 * votes that they have or may have, so that those block no other acquisition.
 */
export abstract class VoteOperation implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  abstract readonly command: string | AcquireCommand;
  abstract readonly initialServers: number;
  abstract readonly isSettled: boolean;
  result: AcquireResult | undefined;
  newestTokenUs = 0;
  protected readonly quorum: Quorum;
  /** The replies of the present round. */
  protected voteCount: VoteCount;
  readonly #retryWithinMs: number;
  /** The ballot of the first round, by which servers know for which acquisition they voted. */
  #firstBallotUs = 0;
  /** The largest ballot of all rounds. A vote for a larger one belongs to a later acquisition and is not released. */
  #largestBallotUs = 0;
  /** Servers that may still vote, in bits. */
  #unanswered = 0;
  /** Servers that voted, in bits. */
  #votes = 0;
  /** Servers whose reply was lost after the request was sent, in bits. */
  #uncertain = 0;
  /** Votes that may still arrive although the acquisition has won. */
  #pendingVote: PendingVote | undefined;

  constructor(request: AcquireRequest, quorum: Quorum) {
    this.key = request.key;
    this.holder = request.holder;
    this.quorum = quorum;
    this.voteCount = new VoteCount(quorum.servers);
    this.#retryWithinMs = request.retryWithinMs ?? 0;
  }

  abstract conclude(outcome: RoundOutcome): number | undefined;

  onReply(server: QuorumServer, reply: string, timeUs: number): void {
    this.#recordVote(server, reply);
    this.voteCount.countReply(reply, timeUs);
  }

  /** That server has no pending vote any more. */
  onUncountedReply(server: QuorumServer, reply: string): void {
    if (this.#pendingVote) this.quorum.pendingVotes.settle(this.#pendingVote, server.bit);
    this.#recordVote(server, reply);
  }

  /** If the connection was lost, the request may still arrive, and the server may vote then. */
  onNoReply(server: QuorumServer, wasSent: boolean): void {
    if (!wasSent) return;
    if (this.#hasLost) server.releaseLater(this.#releaseRequest);
    else this.#uncertain |= server.bit;
  }

  protected endRound({ ballot, unanswered }: RoundOutcome): void {
    this.#firstBallotUs = ballot.firstUs;
    this.#largestBallotUs = Math.max(this.#largestBallotUs, ballot.us);
    this.#unanswered = unanswered;
  }

  /** Ends a round of votes: returns its count, and begins the next one. */
  protected endVoteRound(outcome: RoundOutcome): VoteCount {
    const { voteCount } = this;
    this.endRound(outcome);
    // The next ballot must not build on one that the servers refuse as too far ahead.
    const ballotUs = voteCount.isRefused ? 0 : outcome.ballot.us;
    this.newestTokenUs = Math.max(this.newestTokenUs, voteCount.newestTokenUs, ballotUs);
    this.voteCount = new VoteCount(this.quorum.servers);
    return voteCount;
  }

  /** The votes are split: returns the pause before the next round. Only the acquisition with priority keeps its votes. */
  protected pauseAfter(voteCount: VoteCount, { ballot, roundNumber }: RoundOutcome): number {
    const hasPriority = voteCount.hasPriority(this.holder, ballot.firstUs);
    if (!hasPriority && !voteCount.needsLargerBallot) this.#releaseVotes();
    return voteCount.pauseMs(roundNumber, hasPriority);
  }

  /** Returns what ends the rounds. */
  protected finish(result: AcquireResult): number | undefined {
    this.result = result;
    // If the votes are a lock now, a release of that lock will release them.
    const pendingBits = this.#unanswered | this.#uncertain;
    if (this.#hasLost) this.#releaseVotes();
    else if (pendingBits !== 0) this.#pendingVote = this.quorum.pendingVotes.add(this.holder, pendingBits);
    return undefined;
  }

  /** The acquisition has failed, so votes that arrive from now on are released at once. */
  get #hasLost(): boolean {
    return this.result !== undefined && this.result.kind !== 'granted';
  }

  #recordVote(server: QuorumServer, reply: string): void {
    if (!reply.startsWith('granted')) return;
    if (this.#hasLost) server.release(this.#releaseRequest);
    else this.#votes |= server.bit;
  }

  #releaseVotes(): void {
    const { servers } = this.quorum;
    for (const server of servers.in(this.#votes)) server.release(this.#releaseRequest);
    for (const server of servers.in(this.#uncertain)) server.releaseLater(this.#releaseRequest);
    this.#votes = 0;
    this.#uncertain = 0;
  }

  get #releaseRequest(): ServerRequest {
    const { key, holder } = this;
    const ballots = `${fixedWidth(this.#firstBallotUs)} ${fixedWidth(this.#largestBallotUs)}`;
    return { key, holder, command: `yield ${ballots} ${Math.ceil(this.#retryWithinMs)}` };
  }
}
