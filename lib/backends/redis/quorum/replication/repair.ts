import { systemClock } from '../../../../core/clock.js';
import type { Quorum } from '../operations/quorum-operation.js';
import type { Renewal } from '../operations/renewal.js';
import { remainingLeaseMs } from '../server-call.js';
import { replicateTo } from './replication-batch.js';
import { sendTo } from './single-server-call.js';

/** Shorter leases end before a repair helps. The check whether a lock is still held also renews for a very short lease. */
const MIN_REPAIR_LEASE_MS = 100;

/**
 * Read repair: after a renewal on a majority, copies the lock to servers that do not hold it (any more), so that it survives
 * the restart of one server after the other. A copy never counts for the renewal that found it missing. It takes effect only
 * within half of the renewed lease, or not at all, so no other grant can come in between.
 */
export async function repair(
  { servers, pendingVotes }: Quorum,
  renewals: readonly Renewal[],
  sentAtMs: number,
): Promise<void> {
  const incomplete = renewals.filter(
    ({ result, serversWithoutLock, leaseMs }) =>
      result?.kind === 'renewed' && serversWithoutLock !== 0 && leaseMs >= MIN_REPAIR_LEASE_MS,
  );
  for (const holdingServer of servers.all) {
    const repairs = incomplete
      .filter((renewal) => renewal.holdingServer === holdingServer)
      .map((renewal) => ({
        renewal,
        pendingVote: pendingVotes.add(renewal.holder, renewal.serversWithoutLock),
      }));
    if (repairs.length === 0) continue;
    const callReply = await sendTo(
      holdingServer,
      repairs.map(({ renewal: { key, holder } }) => ({ key, holder, command: 'copy' })),
      Infinity,
    );
    const untilMs = sentAtMs + Math.min(...repairs.map(({ renewal }) => renewal.leaseMs)) / 2;
    const nowMs = systemClock.monotonicMs();
    const copies = repairs.flatMap(
      ({ renewal: { key, holder, leaseMs, serversWithoutLock }, pendingVote }, index) => {
        pendingVotes.settle(pendingVote, serversWithoutLock);
        const lock = callReply?.replies[index] ?? 'lost';
        if (lock === 'lost' || pendingVote.isReleased || nowMs > untilMs) return [];
        const remainingMs = remainingLeaseMs(leaseMs, nowMs - sentAtMs);
        const command = `rejoin ${remainingMs} ${leaseMs + servers.quarantineMs} ${lock}`;
        return [{ serversWithoutLock, request: { key, holder, command } }];
      },
    );
    for (const server of servers.all) {
      const requests = copies
        .filter(({ serversWithoutLock }) => serversWithoutLock & server.bit)
        .map(({ request }) => request);
      if (requests.length > 0) void replicateTo(server, { requests, untilMs, pendingVotes });
    }
  }
}
