import type { ReleaseResult, ReleaseRequest } from '../../../../core/backend.js';
import type { QuorumOperation, Quorum, RoundOutcome } from './quorum-operation.js';
import { RELEASE_WITHIN_LEASE } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import { type QuorumServers, countBits } from '../servers/quorum-servers.js';

/** Gives a lock back on all servers: it is answered when a majority has, and the others are asked until they have, too. */
export class Release implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  readonly command: string;
  readonly initialServers: number;
  result: ReleaseResult | undefined;
  readonly #servers: QuorumServers;
  readonly #hasEnded: boolean;
  /** So many servers know nothing of it. */
  readonly #uncontacted: number;
  #released = 0;
  #gone = 0;
  /** So many have noted the end of the run. */
  #recorded = 0;
  /** So many will not say. */
  #withoutReply = 0;
  #hasWaiters = false;
  /** Whoever still owes an answer will not be waited for. */
  #isOver = false;

  constructor({ key, holder, hasEnded }: ReleaseRequest, { servers, replication, pendingVotes }: Quorum) {
    const uncontacted = replication.take(holder);
    this.key = key;
    this.holder = holder;
    this.command = hasEnded ? 'finish' : uncontacted === 0 ? 'release' : RELEASE_WITHIN_LEASE;
    this.initialServers = servers.allBits & ~uncontacted;
    this.#servers = servers;
    this.#hasEnded = hasEnded === true;
    this.#uncontacted = countBits(uncontacted);
    const pendingServers = pendingVotes.take(holder);
    if (pendingServers === 0) return;
    const lateRelease = { key, holder, command: hasEnded ? 'finish' : 'release' };
    for (const server of servers.all) if (pendingServers & server.bit) server.releaseLater(lateRelease);
  }

  get isSettled(): boolean {
    return this.#result !== undefined || this.#isComplete;
  }

  onReply(server: QuorumServer, reply: string): void {
    if ((this.initialServers & server.bit) === 0) return;
    if (reply === 'gone') this.#gone += 1;
    else this.#released += 1;
    if (reply.startsWith('noted')) this.#recorded += 1;
    if (reply.endsWith(' waiting')) this.#hasWaiters = true;
  }

  /** It was given back there, too, but that does not count. */
  onUncountedReply(server: QuorumServer): void {
    if (this.initialServers & server.bit) this.#withoutReply += 1;
  }

  onNoReply(server: QuorumServer, wasSent: boolean): void {
    if ((this.initialServers & server.bit) === 0) return;
    this.#withoutReply += 1;
    if (wasSent) server.releaseLater(this);
    else server.release(this);
  }

  conclude({ timeoutMs, wasSent }: RoundOutcome): undefined {
    this.#isOver = true;
    this.result = this.#result ?? this.#servers.noMajorityResult(timeoutMs, wasSent);
  }

  /** All have said what they will. */
  get #isComplete(): boolean {
    return this.#isOver || this.#notHolding + this.#withoutReply === this.#servers.all.length;
  }

  /** Of so many it is known that they do not hold it any more. */
  get #notHolding(): number {
    return this.#uncontacted + this.#released + this.#gone;
  }

  get #result(): ReleaseResult | undefined {
    const { all, needed, maxFailures } = this.#servers;
    if (this.#gone > maxFailures) return { kind: 'gone' };
    // A server that has not heard of the end could have the run taken over.
    if (this.#hasEnded && this.#recorded < needed && this.#notHolding < all.length) return undefined;
    if (this.#released === 0 || this.#notHolding < needed) return undefined;
    // Of a lock that has lapsed, or is somebody else's by now, a minority may have something left.
    if (this.#released + this.#uncontacted < needed && !this.#isComplete) return undefined;
    // Servers that were away when it was granted, or that have forgotten it, do not make it one that was not there.
    return { kind: 'released', ...(this.#hasWaiters && { hasWaiters: true }) };
  }
}
