import type { AcquireRequest, AcquireResult } from '../../../../core/backend.js';
import { systemClock } from '../../../../core/clock.js';
import type { Replication } from '../replication/replication.js';
import type { AcquireCommand } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import { HeldVotes } from './held-votes.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';
import { VoteCount } from './vote-count.js';

/** When to retry after a round in which acquisitions only split the votes. */
const RETRY_AFTER_CONTENTION_MS = 2;

/** The command of an acquisition, and the servers of its first round. */
interface AcquisitionPlan {
  readonly command: AcquireCommand;
  readonly initialServers: number;
}

/**
 * Acquires a lock. An acquisition wins with the votes of a majority for one token. If acquisitions split the votes, the one
 * with the smallest first ballot keeps its votes; the others release theirs and pause.
 */
export class Acquisition implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  readonly command: AcquireCommand;
  /** The majority that is likely to reply first; all servers after the first round. */
  initialServers: number;
  readonly #heldVotes: HeldVotes;
  result: AcquireResult | undefined;
  newestTokenUs = 0;
  readonly #servers: QuorumServers;
  readonly #replication: Replication;
  #voteCount: VoteCount;

  constructor(request: AcquireRequest, { command, initialServers }: AcquisitionPlan, quorum: Quorum) {
    const { servers, replication } = quorum;
    this.key = request.key;
    this.holder = request.holder;
    this.command = command;
    this.#heldVotes = new HeldVotes(request, quorum, request.retryWithinMs);
    this.#servers = servers;
    this.#replication = replication;
    this.initialServers = initialServers;
    this.#voteCount = new VoteCount(servers);
  }

  get isSettled(): boolean {
    return this.#voteCount.isDecided;
  }

  onReply(server: QuorumServer, reply: string, timeUs: number): void {
    if (reply.startsWith('granted')) this.#heldVotes.add(server);
    this.#voteCount.countReply(reply, timeUs);
  }

  onUncountedReply(server: QuorumServer, reply: string): void {
    this.#heldVotes.onLateReply(server);
    if (reply.startsWith('granted')) this.#heldVotes.add(server);
  }

  onNoReply(server: QuorumServer, wasSent: boolean): void {
    if (wasSent) this.#heldVotes.addUncertain(server);
  }

  conclude(outcome: RoundOutcome): number | undefined {
    const { roundNumber, ballot, sentAtMs, endsAtMs, timeoutMs, wasSent, uncontacted } = outcome;
    const { key, holder, command } = this;
    const voteCount = this.#voteCount;
    this.#heldVotes.endRound(outcome);
    const { needed } = this.#servers;
    const fencingToken = voteCount.grantedToken(ballot);
    if (fencingToken !== undefined) {
      const isBareMajority = uncontacted !== 0 && fencingToken === BigInt(ballot.us);
      if (isBareMajority) this.#replication.add({ key, holder, command, ballot, uncontacted, sentAtMs });
      return this.#finish({ kind: 'granted', fencingToken });
    }
    if (voteCount.isTaken) return this.#finish({ kind: 'taken', remainingMs: voteCount.remainingMs });
    this.newestTokenUs = Math.max(this.newestTokenUs, voteCount.newestTokenUs);
    this.#voteCount = new VoteCount(this.#servers);
    this.initialServers = this.#servers.allBits;
    if (voteCount.usableReplies < needed) {
      // The servers refused by their clocks. Their replies have corrected our estimate of those clocks, so retry at once.
      const isClockCorrected =
        roundNumber === 0 && voteCount.usableReplies + voteCount.refusedReplies >= needed;
      return isClockCorrected ? 0 : this.#finish(this.#servers.noMajorityResult(timeoutMs, wasSent));
    }
    // Only now: the next ballot must not build on one that the servers refuse as too far ahead.
    this.newestTokenUs = Math.max(this.newestTokenUs, ballot.us);
    const hasPriority = voteCount.hasPriority(holder, ballot.firstUs);
    const pauseMs = voteCount.pauseMs(roundNumber, hasPriority);
    if (systemClock.monotonicMs() + pauseMs >= endsAtMs) {
      return this.#finish({
        kind: 'taken',
        remainingMs: Math.max(voteCount.remainingMs, RETRY_AFTER_CONTENTION_MS),
      });
    }
    if (!hasPriority && !voteCount.needsLargerBallot) this.#heldVotes.release();
    return pauseMs;
  }

  #finish(result: AcquireResult): number | undefined {
    this.result = result;
    if (result.kind === 'granted') this.#heldVotes.markWon();
    else this.#heldVotes.markLost();
    return undefined;
  }
}
