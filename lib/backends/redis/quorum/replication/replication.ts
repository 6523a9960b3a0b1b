import { type Timer, systemClock } from '../../../../core/clock.js';
import type { PendingVotes } from '../operations/pending-votes.js';
import { type AcquireCommand, type Ballot, encodeReplication, remainingLeaseMs } from '../server-call.js';
import type { QuorumServers } from '../servers/quorum-servers.js';
import { replicateTo } from './replication-batch.js';

/** A lock that a bare majority has granted, while nothing was sent to the other servers. */
interface UnreplicatedLock {
  readonly key: string;
  readonly holder: string;
  readonly command: AcquireCommand;
  readonly ballot: Ballot;
  /** The servers that were not contacted, in bits. */
  readonly uncontacted: number;
  /** When the acquisition was sent. */
  readonly sentAtMs: number;
}

/** How long a lock may be on a bare majority only. Many locks are released sooner. */
const REPLICATE_AFTER_MS = 20;
const MAX_BATCH_SIZE = 200;

/**
 * Copies locks of a bare majority to the other servers, so that they survive the loss of some servers. The delay spares
 * these servers the locks that are held only briefly.
 *
 * To contact only a majority is known as the thrifty optimization of quorum protocols.
 *
 * @see Moraru, Andersen, Kaminsky, "There Is More Consensus in Egalitarian Parliaments" (2013)
 */
export class Replication {
  readonly #servers: QuorumServers;
  readonly #pendingVotes: PendingVotes;
  /** By holder, the oldest first. */
  readonly #unreplicated = new Map<string, UnreplicatedLock>();
  #timer: Timer | undefined;

  constructor(servers: QuorumServers, pendingVotes: PendingVotes) {
    this.#servers = servers;
    this.#pendingVotes = pendingVotes;
  }

  /** Schedules the copies of a lock. */
  add(lock: UnreplicatedLock): void {
    this.#unreplicated.set(lock.holder, lock);
    this.#schedule();
  }

  /** The servers to which the lock will be copied, in bits. */
  uncontactedOf(holder: string): number {
    return this.#unreplicated.get(holder)?.uncontacted ?? 0;
  }

  /**
   * The lock is released, so it is not copied any more. Returns the servers that were not contacted, in bits; 0 if the lease
   * may have ended.
   */
  take(holder: string): number {
    const lock = this.#unreplicated.get(holder);
    if (!lock) return 0;
    this.#unreplicated.delete(holder);
    return systemClock.monotonicMs() < untilMsOf(lock) ? lock.uncontacted : 0;
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#unreplicated.clear();
  }

  #schedule(): void {
    this.#timer ??= systemClock.after(REPLICATE_AFTER_MS, () => {
      this.#timer = undefined;
      this.#replicateDue();
      if (this.#unreplicated.size > 0) this.#schedule();
    });
  }

  #replicateDue(): void {
    const nowMs = systemClock.monotonicMs();
    const due: UnreplicatedLock[] = [];
    for (const lock of this.#unreplicated.values()) {
      if (lock.sentAtMs + REPLICATE_AFTER_MS > nowMs || due.length === MAX_BATCH_SIZE) break;
      this.#unreplicated.delete(lock.holder);
      // Only while it is certainly held, so that no other grant can come in between.
      if (nowMs < untilMsOf(lock)) due.push(lock);
    }
    for (const server of this.#servers.all) {
      const locks = due.filter(({ uncontacted }) => uncontacted & server.bit);
      if (locks.length === 0) continue;
      const requests = locks.map(({ key, holder, command, ballot, sentAtMs }) => {
        const leaseMs = remainingLeaseMs(command.leaseMs, nowMs - sentAtMs);
        return { key, holder, command: encodeReplication(holder, { ...command, leaseMs }, ballot) };
      });
      void replicateTo(server, {
        requests,
        untilMs: Math.min(...locks.map(untilMsOf)),
        pendingVotes: this.#pendingVotes,
      });
    }
  }
}

/** The lock is certainly held until then: half of its lease. */
const untilMsOf = ({ sentAtMs, command }: UnreplicatedLock) => sentAtMs + command.leaseMs / 2;
