import { type Timer, systemClock } from '../../../../core/clock.js';
import { replicateTo } from './replication-batch.js';
import type { PendingVotes } from '../operations/pending-votes.js';
import { type AcquireCommand, type Ballot, remainingLeaseMs, encodeReplication } from '../server-call.js';
import type { QuorumServers } from '../servers/quorum-servers.js';

/** A lock that a majority has, and some servers were not asked for. */
interface UnreplicatedLock {
  readonly key: string;
  readonly holder: string;
  readonly command: AcquireCommand;
  readonly ballot: Ballot;
  /** The servers that know nothing of it, in bits. */
  readonly uncontacted: number;
  /** When it was asked for. */
  readonly sentAtMs: number;
}

/** So long a lock may be held by a bare majority. Many are given back sooner. */
const REPLICATE_AFTER_MS = 20;
const MAX_BATCH_SIZE = 200;

/**
 * Takes locks that were won with the votes of a bare majority to the other servers as well, so that they outlive the loss
 * of some of them; and spares these servers those locks that are held for a moment only.
 *
 * Asking no more servers than it takes is known as thrifty from quorum protocols.
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

  add(lock: UnreplicatedLock): void {
    this.#unreplicated.set(lock.holder, lock);
    this.#schedule();
  }

  /** The servers that know nothing of the lock and will be told, in bits. */
  uncontactedOf(holder: string): number {
    return this.#unreplicated.get(holder)?.uncontacted ?? 0;
  }

  /** The lock ends: the servers that know nothing of it, in bits; none if it may have lapsed. */
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
      // As long as it surely is held: then no other grant can have come between.
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

/** The lock is surely held until then. */
const untilMsOf = ({ sentAtMs, command }: UnreplicatedLock) => sentAtMs + command.leaseMs / 2;
