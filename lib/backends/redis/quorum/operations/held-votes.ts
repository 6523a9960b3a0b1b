import type { Claim } from '../../../../core/backend.js';
import { type ServerRequest, fixedWidth } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { PendingVote } from './pending-votes.js';
import type { Quorum, RoundOutcome } from './quorum-operation.js';

/** The votes that one acquisition has or may have. If it fails they are released, so that they block no other acquisition. */
export class HeldVotes {
  readonly #claim: Claim;
  readonly #retryWithinMs: number;
  readonly #quorum: Quorum;
  /** The ballot of the first round, by which servers know for which acquisition they voted. */
  #firstBallotUs = 0;
  /** The largest ballot of all rounds. A vote for a larger one belongs to a later acquisition and is not released. */
  #largestBallotUs = 0;
  /** Servers that may still vote, in bits. */
  #unanswered = 0;
  /** Servers that voted, in bits. */
  #serverBits = 0;
  /** Servers whose reply was lost after the request was sent, in bits. */
  #uncertain = 0;
  /** Votes that may still arrive although the acquisition has won. */
  #pendingVote: PendingVote | undefined;
  #hasLost = false;

  constructor(claim: Claim, quorum: Quorum, retryWithinMs = 0) {
    this.#claim = claim;
    this.#quorum = quorum;
    this.#retryWithinMs = retryWithinMs;
  }

  /** Remembers the ballot of a finished round, and the servers that did not reply. */
  endRound({ ballot, unanswered }: Pick<RoundOutcome, 'ballot' | 'unanswered'>): void {
    this.#firstBallotUs = ballot.firstUs;
    this.#largestBallotUs = Math.max(this.#largestBallotUs, ballot.us);
    this.#unanswered = unanswered;
  }

  /** A server has voted, or not. After the acquisition has failed, releases the vote at once. */
  onReply(server: QuorumServer, reply: string): void {
    if (!reply.startsWith('granted')) return;
    if (this.#hasLost) server.release(this.#releaseRequest);
    else this.#serverBits |= server.bit;
  }

  /** The same for a reply that came too late to count: that server has no pending vote any more. */
  onUncountedReply(server: QuorumServer, reply: string): void {
    if (this.#pendingVote) this.#quorum.pendingVotes.settle(this.#pendingVote, server.bit);
    this.onReply(server, reply);
  }

  /** If the connection was lost, the request may still arrive, and the server may vote then. */
  onNoReply(server: QuorumServer, wasSent: boolean): void {
    if (!wasSent) return;
    if (this.#hasLost) server.releaseLater(this.#releaseRequest);
    else this.#uncertain |= server.bit;
  }

  /** The votes are a lock now, and a release of that lock will release them. */
  markWon(): void {
    const pendingBits = this.#unanswered | this.#uncertain;
    if (pendingBits !== 0) this.#pendingVote = this.#quorum.pendingVotes.add(this.#claim.holder, pendingBits);
  }

  /** The acquisition has failed: releases its votes, and those that arrive later. */
  markLost(): void {
    this.#hasLost = true;
    this.release();
  }

  /** Releases the votes, so that an acquisition with a smaller first ballot can win them. */
  release(): void {
    const { servers } = this.#quorum;
    for (const server of servers.in(this.#serverBits)) server.release(this.#releaseRequest);
    for (const server of servers.in(this.#uncertain)) server.releaseLater(this.#releaseRequest);
    this.#serverBits = 0;
    this.#uncertain = 0;
  }

  get #releaseRequest(): ServerRequest {
    const { key, holder } = this.#claim;
    const ballots = `${fixedWidth(this.#firstBallotUs)} ${fixedWidth(this.#largestBallotUs)}`;
    return { key, holder, command: `yield ${ballots} ${Math.ceil(this.#retryWithinMs)}` };
  }
}
