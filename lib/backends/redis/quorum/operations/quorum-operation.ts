import type { Replication } from '../replication/replication.js';
import type { Ballot } from '../server-call.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import type { PendingVotes } from './pending-votes.js';
import type { RoundRequest } from './round.js';

/** What all operations of one quorum share. */
export interface Quorum {
  readonly servers: QuorumServers;
  readonly replication: Replication;
  readonly pendingVotes: PendingVotes;
}

/** The outcome of one round, for all operations that took part. */
export interface RoundOutcome {
  /** From 0. */
  readonly roundNumber: number;
  readonly ballot: Ballot;
  readonly sentAtMs: number;
  /** No further round starts after this time. */
  readonly endsAtMs: number;
  /** How long each round may take. */
  readonly timeoutMs: number;
  /** Whether a request was sent to any server, in this round or an earlier one. */
  readonly wasSent: boolean;
  /** Servers to which nothing was sent, in bits. */
  readonly uncontacted: number;
  /** Servers that have not replied yet, in bits. */
  readonly unanswered: number;
}

/** A request that may take several rounds. */
export interface QuorumOperation extends RoundRequest {
  /** The newest token that it has seen: the next ballot must be larger. `undefined` if it needs no ballot. */
  readonly newestTokenUs?: number;
  /** Ends a round. Returns the pause before the next round in ms, or `undefined` if the operation has its result. */
  conclude(outcome: RoundOutcome): number | undefined;
}
