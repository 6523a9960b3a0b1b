import type { ReleaseRequest } from '../../../../core/backend.js';
import type { ReleaseResult } from '../../../../core/backend-results.js';
import { RELEASE_WITHIN_LEASE } from '../server-call.js';
import type { QuorumServer } from '../servers/quorum-server.js';
import { countBits } from '../servers/quorum-servers.js';
import type { Quorum, QuorumOperation, RoundOutcome } from './quorum-operation.js';

/** Releases a lock on all servers. It has a result when a majority has released it; the others are retried until they have too. */
export class Release implements QuorumOperation {
  readonly key: string;
  readonly holder: string;
  readonly command: string;
  readonly initialServers: number;
  readonly needsVotes = false;
  result: ReleaseResult | undefined;
  readonly #quorum: Quorum;
  readonly #hasEnded: boolean;
  /** How many servers were never sent the lock. */
  readonly #uncontacted: number;
  #released = 0;
  #gone = 0;
  /** How many servers have recorded the end of the run. */
  #recorded = 0;
  /** How many servers will not reply, or have no vote. */
  #withoutReply = 0;
  #hasWaiters = false;
  /** The round is over: no further reply is waited for. */
  #isOver = false;

  constructor({ key, holder, hasEnded }: ReleaseRequest, quorum: Quorum) {
    const { servers, replication, pendingVotes } = quorum;
    const uncontacted = replication.take(holder);
    const command = hasEnded ? 'finish' : 'release';
    this.key = key;
    this.holder = holder;
    this.command = uncontacted !== 0 && !hasEnded ? RELEASE_WITHIN_LEASE : command;
    this.initialServers = servers.allBits & ~uncontacted;
    this.#quorum = quorum;
    this.#hasEnded = hasEnded === true;
    this.#uncontacted = countBits(uncontacted);
    for (const server of servers.in(pendingVotes.take(holder))) server.releaseLater({ key, holder, command });
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

  /** The lock was released there too, but the server has no vote. */
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
    this.result = this.#result ?? this.#quorum.servers.noMajorityResult(timeoutMs, wasSent);
  }

  /** No further reply can come. */
  get #isComplete(): boolean {
    return this.#isOver || this.#notHolding + this.#withoutReply === this.#quorum.servers.all.length;
  }

  /** How many servers certainly do not hold the lock any more. */
  get #notHolding(): number {
    return this.#uncontacted + this.#released + this.#gone;
  }

  get #result(): ReleaseResult | undefined {
    const { all, needed, maxFailures } = this.#quorum.servers;
    if (this.#gone > maxFailures) return { kind: 'gone' };
    // While a majority may not have recorded the end, the run could be taken over.
    if (this.#hasEnded && this.#recorded < needed && this.#notHolding < all.length) return undefined;
    if (this.#released === 0 || this.#notHolding < needed) return undefined;
    // A minority may still hold votes of a lock that has expired, or that another holder has by now.
    if (this.#released + this.#uncontacted < needed && !this.#isComplete) return undefined;
    // `gone` replies of a minority do not change this: those servers were away at the grant, or have lost the lock.
    return { kind: 'released', ...(this.#hasWaiters && { hasWaiters: true }) };
  }
}
