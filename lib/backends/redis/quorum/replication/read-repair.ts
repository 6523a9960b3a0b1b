import { systemClock } from '../../../../core/clock.js';
import type { Quorum } from '../operations/quorum-operation.js';
import { remainingLeaseMs } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import { copyTo } from './replication.js';

/** Shorter leases end before a repair helps. The check whether a lock is still held also renews for a very short lease. */
const MIN_REPAIR_LEASE_MS = 100;

/** A lock that a majority has renewed. */
interface RenewedLock {
  readonly key: string;
  readonly holder: string;
  readonly leaseMs: number;
  /** How long a server remembers the lock at least. */
  readonly memoryMs: number;
  /** A server that holds the lock. */
  readonly source: QuorumServer;
  /** The servers that do not hold it, in bits. */
  readonly targets: number;
  /** When the renewal was sent. */
  readonly startedAtMs: number;
}

/**
 * Read repair: copies the lock to the servers that do not hold it, so that it survives the restart of one server after the
 * other. A copy never counts for the renewal that found it missing. It takes effect only within half of the renewed lease, or
 * not at all, so no other grant can come in between.
 */
export async function repairServers(quorum: Quorum, lock: RenewedLock): Promise<void> {
  const { servers, pendingVotes } = quorum;
  const { key, holder, leaseMs, memoryMs, source, targets, startedAtMs } = lock;
  if (targets === 0 || leaseMs < MIN_REPAIR_LEASE_MS) return;
  const pendingVote = pendingVotes.add(holder, targets);
  const request = { key, holder, command: `copy ${memoryMs}` };
  const copy = (await source.sendRequest(request, Infinity)) ?? 'lost';
  pendingVotes.settle(pendingVote, targets);
  const passedMs = systemClock.monotonicMs() - startedAtMs;
  if (copy === 'lost' || pendingVote.isReleased || passedMs > leaseMs / 2) return;
  const command = `rejoin ${remainingLeaseMs(leaseMs, passedMs)} ${copy}`;
  copyTo(servers.in(targets), { key, holder, command }, { untilMs: startedAtMs + leaseMs / 2, pendingVotes });
}
