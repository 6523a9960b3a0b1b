import type { PendingVotes } from '../operations/pending-votes.js';
import type { ServerRequest } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import { sendTo } from './single-server-call.js';

interface ReplicationBatch {
  /** `rejoin` requests: copies of locks that other servers hold. */
  readonly requests: readonly ServerRequest[];
  /** The server refuses them after this time. */
  readonly untilMs: number;
  readonly pendingVotes: PendingVotes;
}

/** Copies locks to one more server. Until it replies, a release of such a lock must be sent to it a second time. */
export async function replicateTo(
  server: QuorumServer,
  { requests, untilMs, pendingVotes }: ReplicationBatch,
): Promise<void> {
  const registered = requests.map(({ holder }) => pendingVotes.add(holder, server.bit));
  const callReply = await sendTo(server, requests, untilMs);
  if (callReply) for (const one of registered) pendingVotes.settle(one, server.bit);
}
