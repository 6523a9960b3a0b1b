import type { Replication } from '../replication/replication.js';
import type { Ballot, ServerRequest } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import type { PendingVotes } from './pending-votes.js';

/** What all operations of one quorum share. */
export interface Quorum {
  readonly servers: QuorumServers;
  readonly replication: Replication;
  readonly pendingVotes: PendingVotes;
}

/** A request that may take several rounds. */
export interface QuorumOperation extends ServerRequest {
  /** The servers to contact first, in bits. The others follow if these do not settle the request. */
  readonly initialServers: number;
  /** No further reply can change the result. */
  readonly isSettled: boolean;
  /** `false`: it is sent even while too few servers have a vote. */
  readonly needsVotes?: boolean;
  /** The newest token that it has seen: the next ballot must be larger. `undefined` if it needs no ballot. */
  readonly newestTokenUs?: number;
  /** A server with a vote replied in time. `timeUs` is the time of its clock. */
  onReply(server: QuorumServer, reply: string, timeUs: number): void;
  /** A server without a vote replied, or one whose reply came too late to count. */
  onUncountedReply?(server: QuorumServer, reply: string): void;
  /** No reply will come: the request was not sent, or its outcome is unknown (`wasSent`). */
  onNoReply?(server: QuorumServer, wasSent: boolean): void;
  /** Ends a round. Returns the pause before the next round in ms, or `undefined` if the operation has its result. */
  conclude(outcome: RoundOutcome): number | undefined;
  /** Every server that was contacted in the round has replied or failed. This may be after the result. */
  onAllReplied?(): void;
}

/** The outcome of one round, for all operations that took part. */
export interface RoundOutcome {
  /** From 0. */
  readonly roundNumber: number;
  readonly ballot: Ballot;
  readonly sentAtMs: number;
  /** No further round starts after this time, so that the result is there while the caller still waits for it. */
  readonly endsAtMs: number;
  /** The same for an operation that must not give up early. */
  readonly latestEndMs: number;
  /** How long each round may take. */
  readonly timeoutMs: number;
  /** Whether a request was sent to any server, in this round or an earlier one. */
  readonly wasSent: boolean;
  /** Servers to which nothing was sent, in bits. */
  readonly uncontacted: number;
  /** Servers that have not replied yet, in bits. */
  readonly unanswered: number;
}
