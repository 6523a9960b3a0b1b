import type { PendingVotes } from './pending-votes.js';
import type { Ballot } from '../server-call.js';
import type { RoundRequest } from './round.js';
import type { Replication } from '../replication/replication.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

/** Whom a contest has to do with. */
export interface Quorum {
  readonly servers: QuorumServers;
  readonly replication: Replication;
  readonly pendingVotes: PendingVotes;
}

/** How a round went. */
export interface RoundOutcome {
  /** From 0. */
  readonly roundNumber: number;
  readonly ballot: Ballot;
  readonly sentAtMs: number;
  /** No round begins later than that. */
  readonly endsAtMs: number;
  /** How long each of them may take. */
  readonly timeoutMs: number;
  /** Whether any server was asked, in this round or before. */
  readonly wasSent: boolean;
  /** The servers that there was no need to ask, in bits. */
  readonly uncontacted: number;
  /** Those that still owe an answer. */
  readonly unanswered: number;
}

/** A request that may take several rounds. */
export interface QuorumOperation extends RoundRequest {
  /** The newest token that it met: the next ballot must be larger. Nothing, where it needs no ballot. */
  readonly newestTokenUs?: number;
  /** After a round: how many ms to wait before the next one, or nothing if the answer is there. */
  conclude(outcome: RoundOutcome): number | undefined;
}
