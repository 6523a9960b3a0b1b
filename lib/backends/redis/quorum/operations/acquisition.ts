import type { AcquireRequest } from '../../../../core/backend.js';
import { systemClock } from '../../../../core/clock.js';
import type { AcquireCommand } from '../server-call.js';
import type { Quorum, RoundOutcome } from './quorum-operation.js';
import { VoteOperation } from './vote-operation.js';

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
export class Acquisition extends VoteOperation {
  readonly command: AcquireCommand;
  /** The majority that is likely to reply first; all servers after the first round. */
  initialServers: number;

  constructor(request: AcquireRequest, { command, initialServers }: AcquisitionPlan, quorum: Quorum) {
    super(request, quorum);
    this.command = command;
    this.initialServers = initialServers;
  }

  get isSettled(): boolean {
    return this.voteCount.isDecided;
  }

  conclude(outcome: RoundOutcome): number | undefined {
    const { roundNumber, ballot, sentAtMs, endsAtMs, timeoutMs, wasSent, uncontacted } = outcome;
    const { key, holder, command } = this;
    const { servers, replication } = this.quorum;
    const voteCount = this.endVoteRound(outcome);
    const fencingToken = voteCount.grantedToken(ballot);
    if (fencingToken !== undefined) {
      const isBareMajority = uncontacted !== 0 && fencingToken === BigInt(ballot.us);
      if (isBareMajority) replication.add({ key, holder, command, ballot, uncontacted, sentAtMs });
      return this.finish({ kind: 'granted', fencingToken });
    }
    if (voteCount.isWonByRival) return this.finish({ kind: 'taken', remainingMs: voteCount.remainingMs });
    this.initialServers = servers.allBits;
    if (roundNumber === 0 && voteCount.hasCorrectedClocks) return 0;
    if (!voteCount.hasMajorityReplied) return this.finish(servers.noMajorityResult(timeoutMs, wasSent));
    const pauseMs = this.pauseAfter(voteCount, outcome);
    if (systemClock.monotonicMs() + pauseMs < endsAtMs) return pauseMs;
    const remainingMs = Math.max(voteCount.remainingMs, RETRY_AFTER_CONTENTION_MS);
    return this.finish({ kind: 'taken', remainingMs });
  }
}

/** Makes the commands of one batch. Successive acquisitions with the same parameters share one, which is then encoded once. */
export function acquireCommands(quarantineMs: number): (request: AcquireRequest) => AcquireCommand {
  let last: AcquireCommand | undefined;
  return ({ leaseMs, tokenCount = 1, retryWithinMs: exactMs = 0, instance }) => {
    const retryWithinMs = Math.ceil(exactMs);
    const isSame =
      last?.leaseMs === leaseMs &&
      last.tokenCount === tokenCount &&
      last.retryWithinMs === retryWithinMs &&
      last.instance === instance;
    if (!last || !isSame)
      last = { leaseMs, memoryMs: leaseMs + quarantineMs, retryWithinMs, tokenCount, instance };
    return last;
  };
}
