import type { PendingVotes } from '../operations/pending-votes.js';
import type { ServerRequest } from '../server-call.js';
import { sendTo } from './single-server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';

interface ReplicationBatch {
  /** To hold locks that others hold. */
  readonly requests: readonly ServerRequest[];
  /** They arrive until then, or not at all. */
  readonly untilMs: number;
  readonly pendingVotes: PendingVotes;
}

/** Takes locks to one more server. Who gives one back before that has answered has to tell it again. */
export async function replicateTo(
  server: QuorumServer,
  { requests, untilMs, pendingVotes }: ReplicationBatch,
): Promise<void> {
  const registered = requests.map(({ holder }) => pendingVotes.add(holder, server.bit));
  const callReply = await sendTo(server, requests, untilMs);
  if (callReply) for (const one of registered) pendingVotes.settle(one, server.bit);
}
